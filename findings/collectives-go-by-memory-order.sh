#!/usr/bin/env bash
# broadcast and all_reduce of a permuted tensor go by memory order and mix up its elements
#
# Expected: dist.broadcast(x, 0) makes x on every rank equal to rank 0's x, and all_reduce adds
#   element [i, j, k] of all ranks; a tensor whose strides do not fit is copied or refused.
#   dist.send on gloo does refuse such a tensor: "input tensor has to be contiguous" (seen).
# Happens: torch 2.13.0 on gloo: a tensor that is dense in memory in another order (a
#   transposed matrix, an image after permute(2, 0, 1), channels_last) is accepted and its memory
#   is sent as it lies. A receiver made by torch.empty(shape) gets the right numbers in wrong
#   places, with the right shape, sum and mean. all_reduce of one permuted and one
#   contiguous tensor adds elements that do not belong together, on both ranks. No warning.
# Where: torch/csrc/distributed/c10d/Utils.hpp: assertDense asks for a strided layout only, and
#   getDataPointer takes the memory as it is (its comment leaves contiguity to the caller).
# Who is hurt: an image or batch that rank 0 loads and broadcasts (height x width x channel turned
#   by permute), w.t(), and activations of channels_last models reduced with others: scrambled
#   inputs and sums that look plausible. It depends on how each rank made its tensor.
# Instead: x.contiguous() on every rank before a collective (seen below).
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
image = torch.arange(24.0).reshape(4, 2, 3)  # height, width, channel
cases = {
    "image.permute(2, 0, 1)": image.permute(2, 0, 1),
    "matrix.t()": torch.arange(6.0).reshape(2, 3).t(),
    "channels_last": torch.arange(36.0).reshape(2, 3, 3, 2).contiguous(memory_format=torch.channels_last),
    "contiguous": image.permute(2, 0, 1).contiguous(),
}
for name, value in cases.items():
    sent = value.clone() if rank == 0 else torch.empty(value.shape)  # clone keeps the strides
    dist.broadcast(sent, 0)
    added = value.clone() if rank == 0 else value.contiguous().clone()
    dist.all_reduce(added)
    fits = torch.equal(sent, value), torch.equal(added, 2 * value)
    everywhere = [None, None]
    dist.all_gather_object(everywhere, fits)
    same = sent.sum().item() == value.sum().item()
    if rank == 0:
        print(f"torch {torch.__version__}  {name:22}  right on ranks 0 and 1: broadcast {[fit[0] for fit in everywhere]}  all_reduce {[fit[1] for fit in everywhere]}", flush=True)
    assert same, "the sum is right in any case"
    if name == "contiguous":
        assert everywhere == [(True, True)] * 2
    else:
        assert not everywhere[1][0], "changed: broadcast of " + name
        assert not everywhere[0][1] and not everywhere[1][1], "changed: all_reduce of " + name
got = cases["matrix.t()"].clone() if rank == 0 else torch.empty(3, 2)
dist.broadcast(got, 0)
if rank == 1:
    print("rank 0 broadcasts", cases["matrix.t()"].tolist(), "and rank 1 gets", got.tolist(), flush=True)
dist.destroy_process_group()
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"

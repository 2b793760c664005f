#!/usr/bin/env bash
# A write to a row of a sharded DTensor vanishes: the padding row of an embedding is not zero
#
# Expected: w[1].zero_(), w[1:3].mul_(0) or w[1] += 1 under no_grad changes a DTensor w as it
#   changes a tensor, since indexing returns a view; or it raises, as in-place operations
#   that would change a placement do. So nn.Embedding(padding_idx=1).reset_parameters()
#   after fully_shard (the documented way from the meta device) zeroes the padding row.
# Happens: with torch 2.13.0, indexing along the sharded dimension first gathers the whole
#   tensor and returns a view of that copy. The write goes to the copy, w stays as it was,
#   without an error or a warning. Writes along the other dimension, w[:, 1].zero_(), arrive.
#   w[1] = 0 raises in 2.13.0 (fill_ has no rule); in 2.15.0 it is silent and lost, too (seen).
# Where: torch/distributed/tensor/_ops/_tensor_ops.py (select_int_strategy, gen_slice_strategy:
#   views that redistribute their input); torch/nn/modules/sparse.py,
#   _fill_padding_idx_with_zero, is the writer in nn.Embedding and nn.EmbeddingBag.
# Who is hurt: models whose embeddings are initialised under FSDP2. The padding row is random
#   and stays so, since its gradient is zero: sums and means over padded rows change with the
#   padding. Also code that overwrites rows: new tokens, pruning, a reset of dead codes.
# Instead: initialise before fully_shard; or build the mask of the rows and w.masked_fill_, or
#   edit w.full_tensor() and copy it back with distribute_tensor.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

warnings.filterwarnings("ignore", message="DTensor random operators")
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(dist.get_rank())  # each rank draws other rows: a CPU mesh has no shared tracker


def report(*words):
    if dist.get_rank() == 0:
        print(*words, flush=True)


report("torch", torch.__version__)


def padding_row(sharded):
    """Return the padding row after reset_parameters, its gradient, and one token's sum with 0 and 3 pads."""
    with torch.device("meta"):
        embedding = nn.Embedding(6, 3, padding_idx=1)
    if sharded:
        fully_shard(embedding, mesh=mesh)
    embedding.to_empty(device="cpu")
    embedding.reset_parameters()
    pooled = [embedding(torch.tensor([2] + [1] * pads)).sum(0).tolist() for pads in (0, 3)]
    embedding(torch.tensor([2, 1, 1])).sum().backward()
    weight, grad = embedding.weight, embedding.weight.grad
    if sharded:
        embedding.reshard()
        weight, grad = embedding.weight.full_tensor(), embedding.weight.grad.full_tensor()
    return weight[1].detach(), grad[1], pooled


for sharded in (False, True):
    row, grad, pooled = padding_row(sharded)
    report("fully_shard before reset_parameters:", sharded)
    report("  padding row", row.tolist(), "gradient", grad.tolist())
    report("  sum of one token without and with 3 pads", pooled)
    assert not grad.any()
    assert (row.abs().max() > 0) == sharded, "changed: the padding row is zeroed"
    assert (pooled[0] != pooled[1]) == sharded


def half(w):
    w[1:3].mul_(0)


def add(w):
    w[1] += 1


writes = {
    "w[1].zero_()": lambda w: w[1].zero_(),
    "w[1:3].mul_(0)": half,
    "w[1] += 1": add,
    "w[:, 1].zero_()": lambda w: w[:, 1].zero_(),
}
for name, write in writes.items():
    start = torch.arange(1.0, 25).view(6, 4)
    want, w = start.clone(), distribute_tensor(start, mesh, [Shard(0)])
    write(want)
    write(w)
    got = w.full_tensor()
    kept = torch.equal(got, want)
    report(f"Shard(0)  {name:16}", "arrives" if kept else "is lost" if torch.equal(got, start) else "other")
    lost = not kept and torch.equal(got, start)
    assert kept if name.startswith("w[:") else lost, "changed: " + name
dist.destroy_process_group()
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"

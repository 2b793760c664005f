#!/usr/bin/env bash
# amax(keepdim=True) of a sharded DTensor is the maximum of the rank's shard, not of the tensor
#
# Expected: x.amax(keepdim=True) without `dim` is the maximum of all elements, shaped (1, 1), for a
#   DTensor as for a tensor. x.amax() and x.amax((0, 1), keepdim=True) of a DTensor are right.
# Happens: torch 2.13.0: with keepdim=True and no dim, no rank asks another one. The result has the
#   right shape and is labelled Shard(0), as if it were still split: each rank goes on with the
#   maximum of its own shard, and full_tensor() returns rank 0's on every rank. So do amin and
#   aminmax, with rows or columns sharded. No error, no warning. The documentation of amax says
#   that all dimensions are reduced by default; that of DTensor has no exception.
# Where: torch/distributed/tensor/_ops/_math_ops.py, linear_reduction_strategy: the default dim=()
#   arrives as an empty list, which _infer_reduction_dims takes for "reduce nothing".
# Who is hurt: one scale per weight, w.abs().amax(keepdim=True) / 127, the usual line of int8 and
#   fp8 quantisation, under FSDP2 or tensor parallelism: each rank quantises by another scale, one
#   scale is stored, and the weights that are read back are wrong by the ratio (below: halved).
#   If rank 0 happens to hold the maximum, the stored scale is right and the other shards are not.
# Instead: w.abs().amax().reshape(1, 1), or name all dims (both seen below: right).
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
weight = torch.tensor([[1.0, -2.0, 3.0, -4.0], [8.0, 7.0, -6.0, 5.0]])
sharded = distribute_tensor(weight, mesh, [Shard(0)])


def show(name, value):
    """Print a value of each rank."""
    both = [None, None]
    dist.all_gather_object(both, value)
    if dist.get_rank() == 0:
        print(f"torch {torch.__version__}  {name:34} rank 0: {both[0]}  rank 1: {both[1]}", flush=True)
    return both


def roundtrip(scale):
    """Quantise to int8 and back, the way a checkpoint keeps it: whole numbers and one scale."""
    whole = (sharded / scale).round().clamp(-127, 127).full_tensor()
    return whole * scale.full_tensor()


wrong = sharded.abs().amax(keepdim=True)
local = show("amax(keepdim=True), this rank's", wrong.to_local().item())
full = show("amax(keepdim=True).full_tensor()", wrong.full_tensor().item())
plain = show("amax().full_tensor()", sharded.abs().amax().full_tensor().item())
named = show("amax((0, 1), keepdim=True)", sharded.abs().amax((0, 1), keepdim=True).full_tensor().item())
back = show("int8 and back", roundtrip(wrong / 127)[1].round(decimals=1).tolist())
good = show("the same with amax((0, 1), ...)", roundtrip(sharded.abs().amax((0, 1), keepdim=True) / 127)[1].round(decimals=1).tolist())
least = show("amin(keepdim=True) of -x", (-sharded.abs()).amin(keepdim=True).full_tensor().item())

assert wrong.shape == weight.abs().amax(keepdim=True).shape == (1, 1)
assert plain == named == [8.0, 8.0], "the others are right"
assert good[0] == [8.0, 7.0, -6.0, 5.0], "the others are right"
assert local == [4.0, 8.0] and full == [4.0, 4.0] and least == [-4.0, -4.0], "changed: amax(keepdim=True)"
assert back[0] != good[0], "changed: the weights that are read back"
dist.destroy_process_group()
os._exit(0)  # a thread of gloo's that drops a tensor while Python ends aborts the process
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"

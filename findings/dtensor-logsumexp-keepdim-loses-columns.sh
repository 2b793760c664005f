#!/usr/bin/env bash
# logsumexp(0, keepdim=True) of a column-sharded DTensor is labelled wrongly: columns are lost
#
# Expected: x.logsumexp(0, keepdim=True) of a DTensor with sharded columns has one value per
#   column, shape (1, 4), still sharded by columns; x - it normalises the columns, as it does in
#   one process. Without keepdim the result is right.
# Happens: torch 2.13.0: the local numbers are right, but the result is labelled Shard(0), the place
#   that the columns would have without keepdim. .shape says (1, 4); full_tensor() is
#   (1, 2), the columns of rank 0; x - x.logsumexp(0, keepdim=True) subtracts other
#   columns' values, without an error or a warning. The rule is the same for every sharded
#   dimension after the reduced one: [batch, sequence, heads] with heads over ranks, reduced over
#   the sequence, is wrong as well. Dimensions before the reduced one are right, and so are sum,
#   amax and softmax with keepdim=True.
# Where: torch/distributed/tensor/_ops/_math_ops.py, logsumexp_strategy reads keepdim from the
#   keyword arguments, but it arrives as the third positional one, so that it counts as False.
# Who is hurt: Sinkhorn normalisation and log-space attention or mixtures over tensor-parallel
#   columns: what should add up to 1 per column does not, and each step goes on with it.
# Instead: x.logsumexp(0).unsqueeze(0), or x.log_softmax(0) (both seen below: right).
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
scores = torch.tensor([[1.0, 2.0, 3.0, 4.0], [8.0, 7.0, 6.0, 5.0]])
columns = distribute_tensor(scores, mesh, [Shard(1)])
deep = torch.arange(24.0).sin().reshape(2, 3, 4)
heads = distribute_tensor(deep, mesh, [Shard(2)])


def say(*words):
    if dist.get_rank() == 0:
        print(f"torch {torch.__version__} ", *words, flush=True)


def sums(normalised):
    """Return the sum of each column's probabilities, which should be 1."""
    return [round(value, 3) for value in normalised.full_tensor().exp().sum(0).tolist()]


kept = columns.logsumexp(0, keepdim=True)
say("logsumexp(0, keepdim=True): shape", tuple(kept.shape), "placed", kept.placements, "whole", tuple(kept.full_tensor().shape))
plain = sums(distribute_tensor(scores - scores.logsumexp(0, keepdim=True), mesh, [Shard(1)]))
wrong = sums(columns - kept)
right = sums(columns - columns.logsumexp(0).unsqueeze(0))
soft = sums(columns.log_softmax(0))
say("sum of each column: plain tensor", plain, " DTensor", wrong, " without keepdim", right, " log_softmax", soft)
third = heads.logsumexp(1, keepdim=True)
say("three dimensions, the last one sharded:", tuple(third.shape), "placed", third.placements, "whole", tuple(third.full_tensor().shape))
whole = columns.amax(0, keepdim=True).full_tensor().shape

assert plain == right == soft == [1.0] * 4 and whole == (1, 4), "the others are right"
assert kept.shape == (1, 4) and kept.full_tensor().shape == (1, 2), "changed: full_tensor()"
assert third.shape == (2, 1, 4) and third.full_tensor().shape == (2, 1, 2), "changed: three dimensions"
assert wrong != plain, "changed: x - logsumexp"
dist.destroy_process_group()
os._exit(0)  # a thread of gloo's that drops a tensor while Python ends aborts the process
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"

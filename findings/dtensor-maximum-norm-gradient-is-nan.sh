#!/usr/bin/env bash
# The gradient of a sharded DTensor's maximum norm is nan where rank 1 holds the maximum
#
# Expected: torch.linalg.vector_norm(x, inf) of a sharded DTensor has the value and the gradient
#   that a plain tensor has: the sign of x at the maximum and 0 elsewhere; or it raises.
# Happens: torch 2.13.0 on 2 ranks: the value is right. The gradient is right only where the
#   maximum lies in rank 0's shard. Where it lies in rank 1's, every
#   element of the gradient on every rank is nan or inf. The same for -inf with the minimum, so
#   that it depends on the numbers: here it is right for half of the places. No error, no warning.
# Where: norm_backward in torch/csrc/autograd/FunctionsManual.cpp divides by the number of elements
#   equal to the norm; by what is seen, rank 0's own count (0) is taken on all ranks in place of
#   the sum of the counts. torch/distributed/tensor/_ops/_math_ops.py has the rules.
# Who is hurt: penalties on the largest weight, adversarial training and Lipschitz bounds by
#   the maximum norm under FSDP2 or tensor parallelism: all parameters turn to nan at a step that
#   seems to be random, and the same program in one process is right.
# Instead: x.abs().max() (seen below: right for each place of the maximum).
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (2,))
inf = float("inf")


def largest(x):
    return torch.linalg.vector_norm(x, inf)


def smallest(x):
    return torch.linalg.vector_norm(x, -inf)


def by_max(x):
    return x.abs().max()


def by_min(x):
    return x.abs().min()


seen = {}
for norm in (largest, smallest, by_max, by_min):
    for place in range(4):
        rows = torch.tensor([2.0, -2.0, 2.0, -2.0])
        rows[place] = -3.0 if norm in (largest, by_max) else -1.0
        plain = rows.clone().requires_grad_()
        norm(plain).backward()
        sharded = distribute_tensor(rows, mesh, [Shard(0)]).requires_grad_()
        value = norm(sharded)
        value.backward()
        gradient = sharded.grad.full_tensor()
        assert value.full_tensor().item() == abs(rows[place]), "the value is right"
        seen[norm, place] = gradient, torch.equal(gradient, plain.grad)
        if rank == 0:
            print(f"torch {torch.__version__}  {norm.__name__:8} of {rows.tolist()}: gradient {gradient.tolist()}, plain tensor {plain.grad.tolist()}", flush=True)
for (norm, place), (gradient, right) in seen.items():
    if norm in (largest, smallest) and place >= 2:
        assert not right and gradient.isfinite().sum() == 0, "changed: the gradient is finite"
    else:
        assert right, "the others are right"
dist.destroy_process_group()
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"

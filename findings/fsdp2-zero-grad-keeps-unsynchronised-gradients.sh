#!/usr/bin/env bash
# zero_grad() does not clear the gradients that FSDP2 has accumulated without synchronisation
#
# Expected: a program that accumulates micro-batches and gives up a window (a loss that is not
#   finite, an early end of an epoch, a new sequence) calls zero_grad(), as under DDP's
#   no_sync(), and the next window starts from zero.
# Happens: torch 2.13.0 (2.15.0, too): after set_requires_gradient_sync(False), FSDP2 keeps the
#   gradient of the whole parameter in a place of its own; .grad of each parameter is None.
#   Neither optimizer.zero_grad() nor module.zero_grad() knows that place. The next backward
#   with synchronisation reduces the given-up gradients together with its own: the step is
#   made with the sum of both windows, without a warning. If they were not finite, the
#   step after the skipped one is not finite.
# Where: torch/distributed/fsdp/_fully_shard/_fsdp_param.py (unsharded_accumulated_grad,
#   to_accumulated_grad_if_needed) and _fsdp_param_group.py (post_backward).
# Who is hurt: gradient accumulation with a guard against bad batches: under FSDP2 the guard
#   does nothing but delay the damage by a window. Norms and checks of .grad see None meanwhile.
# Instead: end the window with a synchronised backward, if need be of 0 * output, and call
#   zero_grad() after it; or accumulate with synchronisation in every micro-batch.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
rows = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1))[dist.get_rank()]


def window(kind, first, end_first=False):
    """Return the gradient of one clean micro-batch after a window that was given up."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    if kind == "FSDP2":
        fully_shard(model, mesh=mesh)
    if kind == "DDP":
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if first is not None:
        if kind == "FSDP2":
            model.set_requires_gradient_sync(False)
        with model.no_sync() if kind == "DDP" else nullcontext():
            (model(rows[:3]).sum() * first).backward()
        if kind == "FSDP2":
            model.set_requires_gradient_sync(True)
        if end_first:
            (model(rows[:3]).sum() * 0).backward()
        optimizer.zero_grad()
        model.zero_grad()
        assert all(p.grad is None for p in model.parameters())
    model(rows[3:]).sum().backward()
    grad = next(model.parameters()).grad
    return (grad.full_tensor() if kind == "FSDP2" else grad)[0]


clean = window("DDP", None)
cases = {
    "DDP, nothing given up": clean,
    "DDP, 100 x loss given up": window("DDP", 100.0),
    "FSDP2, nothing given up": window("FSDP2", None),
    "FSDP2, 100 x loss given up": window("FSDP2", 100.0),
    "FSDP2, inf x loss given up": window("FSDP2", float("inf")),
    "FSDP2, synchronised before zero_grad": window("FSDP2", 100.0, end_first=True),
}
if dist.get_rank() == 0:
    print("torch", torch.__version__)
    for name, grad in cases.items():
        print(f"{name:37}", [round(value, 3) for value in grad.tolist()], flush=True)
for name, grad in cases.items():
    kept = name in ("FSDP2, 100 x loss given up", "FSDP2, inf x loss given up")
    assert torch.allclose(grad, clean, atol=1e-5) != kept, "changed: " + name
assert not cases["FSDP2, inf x loss given up"].isfinite().any(), "changed: inf"
dist.destroy_process_group()
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"

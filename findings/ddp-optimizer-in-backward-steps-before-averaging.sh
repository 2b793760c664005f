#!/usr/bin/env bash
# A post-accumulate hook under DistributedDataParallel sees the gradient before it is averaged
#
# Expected: the optimizer step in the backward pass, as PyTorch's own tutorial writes it with
#   register_post_accumulate_grad_hook (step, then zero_grad, for each parameter), works under
#   DDP: the hook runs once .grad is ready, and under DDP it is ready when it is averaged. FSDP2
#   does it so: its hook is called with the reduced gradient.
# Happens: torch 2.13.0 (2.14.1, too): the hook comes before DDP's own. It steps with the gradient
#   of its rank, sets .grad to None, and then DDP averages what nobody uses. Weights drift
#   apart from the first step; no error, no warning. After backward .grad holds the mean of all
#   ranks, as if zero_grad had not been called.
#   Registering the hook after wrapping makes no difference.
# Where: torch/csrc/autograd/functions/accumulate_grad.h runs the tensor's hook in the
#   node; DDP's reducer (csrc/distributed/c10d/reducer.cpp) hangs on the node and runs after it.
# Who is hurt: programs that save the gradients' memory this way, or clip, log or scale in
#   such a hook, on more than one GPU: each rank trains a model of its own at full speed, and
#   the network still carries all gradients. Moving from FSDP2 to DDP changes the training.
# Instead: step after backward(); or fully_shard (seen below). With DDP, divide and all_reduce in
#   the hook yourself, in a plain module.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (2,))
rows = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(1))
loss = lambda model, part: model(part).square().mean()  # noqa: E731


def step_in_backward(model):
    """Give each parameter its optimizer, as in the tutorial."""
    optimizers = {}

    def hook(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        optimizers[parameter] = torch.optim.SGD([parameter], lr=0.5)
        parameter.register_post_accumulate_grad_hook(hook)


def train(kind):
    """Return this rank's weight after 3 steps in the backward pass, and what .grad is then."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2, bias=False)
    if kind == "hook, then DDP":
        step_in_backward(model)
    run = model
    if "DDP" in kind:
        run = DistributedDataParallel(model)
    if kind == "FSDP2, then hook":
        fully_shard(model, mesh=mesh)
    if kind != "hook, then DDP":
        step_in_backward(model)
    for _ in range(3):
        loss(run, rows.flatten(0, 1) if kind == "one process" else rows[rank]).backward()
    weight = model.weight.full_tensor() if "FSDP2" in kind else model.weight
    return weight.detach(), model.weight.grad


right, _ = train("one process")
for kind in ("hook, then DDP", "DDP, then hook", "FSDP2, then hook"):
    weight, grad = train(kind)
    parts = [torch.empty_like(weight) for _ in range(2)]
    dist.all_gather(parts, weight)
    wrong = [(part - right).abs().max().item() for part in parts]
    apart = (parts[0] - parts[1]).abs().max().item()
    if rank == 0:
        print(f"torch {torch.__version__}  {kind:16}  apart by {apart:.4f}, from one process by {wrong[0]:.4f} and {wrong[1]:.4f}, .grad is None: {grad is None}", flush=True)
    if "DDP" in kind:
        assert apart > 1e-3 and min(wrong) > 1e-3, "changed: " + kind
        assert grad is not None, "changed: .grad stays None with " + kind
    else:
        assert apart == 0 and max(wrong) < 1e-6 and grad is None, kind + " is right"
dist.destroy_process_group()
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"

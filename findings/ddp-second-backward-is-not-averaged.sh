#!/usr/bin/env bash
# DistributedDataParallel averages the first of two backward passes only
#
# Expected: two losses may be taken backward one after the other, as in one process: .grad is the
#   sum of both, averaged over ranks. It does not matter whether each loss has its own forward
#   (real and fake rows, two tasks) or both have the same one (retain_graph=True); or DDP raises.
# Happens: torch 2.13.0 (2.14.1, too): a forward prepares the reducer for one backward. The first
#   backward after it is averaged; in each later one the hooks return at once, so that its
#   gradient is added to .grad of its own rank alone. Ranks step with different gradients
#   and their weights drift apart. No error, no warning; losses and shapes look right. In the
#   order forward, backward, forward, backward, and with (a + b).backward(), all is averaged.
# Where: torch/csrc/distributed/c10d/reducer.cpp, autograd_hook (expect_autograd_hooks_, which
#   the end of the first backward sets to false and DistributedDataParallel.forward sets again).
# Who is hurt: GANs, several tasks, contrastive and meta learning, penalties on the output taken
#   backward on their own: each rank trains a model of its own, and rank 0's is saved.
# Instead: add the losses and call backward() once, or make each forward just before its
#   backward (both seen below); compare a parameter over the ranks after a step.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
rows = torch.randn(2, 2, 4, 3, generator=torch.Generator().manual_seed(1))


def two_forwards(model, first, second):
    one, two = model(first).mean(), model(second).square().mean()
    one.backward()
    two.backward()


def one_forward(model, first, second):
    output = model(first)
    output.mean().backward(retain_graph=True)
    output.square().mean().backward()


def in_turn(model, first, second):
    model(first).mean().backward()
    model(second).square().mean().backward()


def added(model, first, second):
    (model(first).mean() + model(second).square().mean()).backward()


def gradients(losses):
    """Return each rank's .grad under DDP, each rank's without it, and the weights after 5 steps."""
    torch.manual_seed(0)
    alone = nn.Linear(3, 1, bias=False)
    model = DistributedDataParallel(nn.Linear(3, 1, bias=False))
    model.module.load_state_dict(alone.state_dict())
    losses(alone, *rows[rank])
    losses(model, *rows[rank])
    found = [model.module.weight.grad.clone(), alone.weight.grad]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        losses(model, *rows[rank])
        optimizer.step()
    found.append(model.module.weight.detach())
    both = []
    for tensor in found:
        parts = [torch.empty_like(tensor) for _ in range(2)]
        dist.all_gather(parts, tensor)
        both.append(parts)
    return both


for losses in (two_forwards, one_forward, in_turn, added):
    ddp, alone, weights = gradients(losses)
    mean = (alone[0] + alone[1]) / 2
    right = [torch.allclose(grad, mean, atol=1e-6) for grad in ddp]
    drift = (weights[0] - weights[1]).abs().max().item()
    if rank == 0:
        print(f"torch {torch.__version__}  {losses.__name__:13} gradient is the ranks' mean: {right}  weights differ after 5 steps by {drift:.4f}", flush=True)
    if losses in (two_forwards, one_forward):
        assert not any(right) and drift > 1e-3, "changed: " + losses.__name__
    else:
        assert all(right) and drift == 0, losses.__name__ + " is right"
dist.destroy_process_group()
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"

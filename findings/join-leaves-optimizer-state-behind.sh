#!/usr/bin/env bash
# After an epoch under Join, ranks have the same weights and other optimizers: they drift apart
#
# Expected: torch.distributed.algorithms.join.Join (or DDP's model.join()) trains ranks that have
#   another number of batches, with any optimizer: at its end the last rank's weights are
#   sent to all, and the next epoch goes on as if all ranks had made all steps.
# Happens: torch 2.13.0 (2.14.1, too): a rank that has run out only shadows the collectives; it
#   makes no optimizer step, and only parameters and buffers are sent at the end. Its Adam or
#   momentum state, and its step count, stay where it stopped. In the next epoch all ranks
#   have the same averaged gradient and each makes another step with it: their weights differ
#   from the first step on, until the end of that epoch sends one rank's to all again. Nothing
#   warns; a comparison of the ranks at the end of an epoch finds them equal.
# Where: torch/nn/parallel/distributed.py, _DDPJoinHook (main_hook, post_hook); a scheduler that
#   is stepped per batch is left behind in the same way.
# Who is hurt: uneven data trained for more than one epoch with Adam or momentum. Gradients are
#   taken at different weights, BatchNorm too, and work of short ranks is thrown away.
# Instead: ZeroRedundancyOptimizer given to Join with the model, whose hook makes the steps (seen
#   below: equal); or a fresh optimizer each epoch; or even data. SGD without momentum is right.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
STEPS = 5, 3
rows = torch.randn(2, 5, 4, 3, generator=torch.Generator().manual_seed(1))


def apart(weights):
    """Return the largest difference between the two ranks, for each step that both made."""
    mine = torch.stack(weights[: min(STEPS)])
    parts = [torch.empty_like(mine) for _ in range(2)]
    dist.all_gather(parts, mine)
    return (parts[0] - parts[1]).flatten(1).abs().amax(1).tolist()


def train(make):
    """Return how far the ranks are apart after each step and at the end, for three epochs."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(3, 1, bias=False))
    optimizer = make(model.parameters())
    joined = [model, optimizer] if isinstance(optimizer, ZeroRedundancyOptimizer) else [model]
    found = []
    for _ in range(3):
        weights = []
        with Join(joined):
            for batch in rows[rank, : STEPS[rank]]:
                optimizer.zero_grad()
                (model(batch) - 1).square().mean().backward()
                optimizer.step()
                weights.append(model.module.weight.detach().clone())
        end = model.module.weight.detach().clone()
        found.append((apart(weights), max(apart([end] * min(STEPS)))))
    return found


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.1)


def zero(parameters):
    return ZeroRedundancyOptimizer(parameters, torch.optim.Adam, lr=0.1)


for make in (sgd, momentum, adam, zero):
    found = train(make)
    for epoch, (steps, end) in enumerate(found):
        if rank == 0:
            text = ", ".join(f"{value:.4f}" for value in steps)
            print(f"torch {torch.__version__}  {make.__name__:8}  epoch {epoch}: ranks apart by {text}, at the end by {end:.4f}", flush=True)
        assert end == 0, "all ranks have one rank's weights at the end"
        if epoch and make in (momentum, adam):
            assert min(steps) > 1e-4, "changed: the ranks stay together with " + make.__name__
        else:
            assert max(steps) < 1e-6, make.__name__ + " is right"
dist.destroy_process_group()
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"

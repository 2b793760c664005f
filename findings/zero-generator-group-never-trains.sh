#!/usr/bin/env bash
# ZeroRedundancyOptimizer never trains a parameter group given as a generator
#
# Expected: param_groups are written as for any torch optimizer. The torch.optim page
#   writes [{"params": model.base.parameters(), "lr": 1e-2}, {"params": ...}], and
#   .parameters() is a generator: the group holds these parameters, or the optimizer raises.
# Happens: ZeroRedundancyOptimizer (torch 2.13.0; 2.15.0 does it too) first walks through the
#   params of all groups to collect and check them, and passes the same, now exhausted,
#   generators on. Each group given as a generator ends up empty, without an error or a
#   warning. No rank ever updates these parameters, and weight decay does not touch them.
#   If all groups are generators, the optimizer trains nothing at all. A list works, and
#   so does ZeroRedundancyOptimizer(model.parameters(), ...), which has one generator.
# Where: torch/distributed/optim/zero_redundancy_optimizer.py, _verify_and_init_params, called
#   in __init__ before the groups reach torch.optim.Optimizer.add_param_group.
# Who is hurt: fine-tuning with one learning rate for the backbone and one for the head. The
#   loss falls by what the other groups learn, and checkpoints of the optimizer lack state.
# Instead: list(model.base.parameters()) in each group; count the optimizer's parameters.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rows = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(1))


def train(groups, make):
    """Return how far the base, the neck and the head move in 5 steps, and what is optimized."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 1))
    before = [layer.weight.detach().clone() for layer in model]
    ddp = DistributedDataParallel(model)
    optimizer = make(groups(model))
    for _ in range(5):
        optimizer.zero_grad()
        ddp(rows[dist.get_rank()]).square().mean().backward()
        optimizer.step()
    moved = [(layer.weight - old).abs().max().item() for layer, old in zip(model, before)]
    return moved, sum(len(group["params"]) for group in optimizer.param_groups)


def zero(groups):
    return ZeroRedundancyOptimizer(groups, optimizer_class=torch.optim.SGD, lr=0.1)


def plain(groups):
    return torch.optim.SGD(groups, lr=0.1)


def generator_and_list(model):
    last = [*model[1].parameters(), *model[2].parameters()]
    return [{"params": model[0].parameters(), "lr": 0.05}, {"params": last}]


def generators(model):
    return [{"params": layer.parameters()} for layer in model]


def lists(model):
    return [{"params": list(layer.parameters())} for layer in model]


seen = {}
for name, groups in (("generator and list", generator_and_list), ("generators", generators), ("lists", lists)):
    for make in (plain, zero):
        seen[name, make] = train(groups, make)
        if dist.get_rank() == 0:
            moved, count = seen[name, make]
            text = ", ".join(f"{value:.4f}" for value in moved)
            kind = "SGD" if make is plain else "ZeroRedundancyOptimizer"
            print(f"{name:18}  {kind:23}  {count} parameters, layers moved by {text}", flush=True)
if dist.get_rank() == 0:
    print("torch", torch.__version__)
assert all(min(seen[name, plain][0]) > 0 and seen[name, plain][1] == 6 for name, _ in seen)
assert min(seen["lists", zero][0]) > 0 and seen["lists", zero][1] == 6, "lists are right"
moved, count = seen["generator and list", zero]
assert moved[0] == 0 and min(moved[1:]) > 0 and count == 4, "changed: the group is trained"
moved, count = seen["generators", zero]
assert max(moved) == 0 and count == 0, "changed: generators are trained"
dist.destroy_process_group()
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
timeout 240 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"

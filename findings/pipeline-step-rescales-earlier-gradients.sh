#!/usr/bin/env bash
# Each pipeline step divides the gradients of the steps before it, too
#
# Expected: gradients accumulate over schedule.step() calls as over backward() calls: after 3
#   steps and no zero_grad(), .grad is the sum of the three steps' gradients.
# Happens: torch 2.13.0 (2.15.0, too): with the default scale_grads=True each step ends with a
#   division of .grad by the number of micro-batches, which includes what was in .grad before
#   the step. With 4 micro-batches the last step counts fully, the one before a quarter, the
#   one before that a sixteenth. 3 equal steps make 1.3125 times one step, not 3 times. Nothing
#   warns; the losses are right. All schedules share it (GPipe and 1F1B are run below).
# Where: torch/distributed/pipelining/stage.py, scale_grads (p.grad.div_), called at the end
#   of each step by the schedules in schedules.py.
# Who is hurt: pipelines with accumulation over several steps, or with a second loss whose
#   backward comes first: most data of a window hardly counts, and the ratio depends on the
#   number of micro-batches. With SGD the step is smaller; with Adam it is silently another mean.
# Instead: more micro-batches in one step; or scale_grads=False and a loss divided by the
#   number of micro-batches (seen below).
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

dist.init_process_group("gloo")
rank = dist.get_rank()
batches = torch.randn(3, 8, 4, generator=torch.Generator().manual_seed(1))
targets = torch.randn(3, 8, 4, generator=torch.Generator().manual_seed(2))


def fourth(output, target):
    return F.mse_loss(output, target) / 4


def accumulate(kind, steps, **options):
    """Return the gradient of this rank's stage over its weights in one process, element by element."""
    torch.manual_seed(0)
    stages = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2)]
    alone = copy.deepcopy(stages)
    stage = PipelineStage(stages[rank], rank, 2, torch.device("cpu"))
    schedule = kind(stage, 4, **options)
    each = []
    for batch, target in zip(batches[:steps], targets[:steps]):
        if rank == 0:
            schedule.step(batch)
        else:
            schedule.step(target=target)
        one = copy.deepcopy(alone)
        F.mse_loss(one[1](one[0](batch)), target).backward()
        each.append(one[rank][0].weight.grad)
    return stages[rank][0].weight.grad, each


cases = {}
for kind in (ScheduleGPipe, Schedule1F1B):
    for steps in (1, 3):
        cases[f"{kind.__name__}, {steps} steps"] = accumulate(kind, steps, loss_fn=F.mse_loss)
cases["scale_grads=False, 3 steps"] = accumulate(ScheduleGPipe, 3, loss_fn=fourth, scale_grads=False)
for name, (grad, each) in cases.items():
    weights = torch.linalg.lstsq(torch.stack(each).flatten(1).T, grad.flatten()[:, None]).solution
    text = [round(value, 4) for value in weights.flatten().tolist()]
    if rank == 0:
        print(f"torch {torch.__version__}  {name:27}  weights of the steps in .grad: {text}", flush=True)
    if len(each) == 1 or "False" in name:
        assert torch.allclose(grad, sum(each), atol=1e-6), name + " is right"
    else:
        wrong = each[0] / 16 + each[1] / 4 + each[2]
        assert torch.allclose(grad, wrong, atol=1e-6), "changed: " + name
        assert not torch.allclose(grad, sum(each), atol=1e-3), "changed: " + name
dist.destroy_process_group()
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"

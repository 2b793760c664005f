#!/usr/bin/env bash
# The model averager pairs whatever parameters have a gradient: ranks mix different layers
#
# Expected: PeriodicModelAverager.average_parameters(model.parameters()) (local SGD) makes each
#   parameter the mean of the same parameter over the ranks; or it raises, where ranks disagree.
# Happens: torch 2.13.0: only parameters whose .grad is not None on this rank are
#   put in one flat tensor, which is averaged by position. If rank 0 used expert A since
#   zero_grad() and rank 1 expert B of the same size, the mean of A on rank 0 and B on rank 1 is
#   written into A on rank 0 and into B on rank 1: layers that have nothing to do with each
#   other are mixed, and ranks are further apart than before. No error, no warning.
#   Where all ranks used both, it is right.
# Where: torch/distributed/algorithms/model_averaging/utils.py, get_params_to_average (which keeps
#   p.grad is not None) and average_parameters (which joins them).
# Who is hurt: local SGD with routed experts, tasks or languages per rank, layer drop, heads per
#   data set: the weights of different layers are blended every period.
# Instead: give every parameter a gradient before averaging (zeros where there is none, seen
#   below: right), so that all ranks list the same parameters.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cat >"$dir/program.py" <<'EOF'
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

dist.init_process_group("gloo")
rank = dist.get_rank()


def average(used, fill):
    """Return both experts' weights on both ranks, before and after one step and an averaging."""
    experts = nn.ModuleList([nn.Linear(1, 1, bias=False) for _ in range(2)])
    with torch.no_grad():
        experts[0].weight.fill_(1)
        experts[1].weight.fill_(100)
    optimizer = torch.optim.SGD(experts.parameters(), lr=1)
    sum(experts[index](torch.ones(1, 1) * (rank + 1)).sum() for index in used).backward()
    optimizer.step()
    if fill:
        for parameter in experts.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
    lists = []
    for turn in range(2):
        if turn:
            PeriodicModelAverager(period=2).average_parameters(experts.parameters())
        mine = torch.tensor([expert.weight.item() for expert in experts])
        parts = [torch.empty(2) for _ in range(2)]
        dist.all_gather(parts, mine)
        lists.append([part.tolist() for part in parts])
    return lists


for name, used, fill in (
    ("both on each rank", (0, 1), False),
    ("A on rank 0, B on rank 1", (rank,), False),
    ("the same, zeros filled in", (rank,), True),
):
    before, after = average(used, fill)
    mean = [(one + two) / 2 for one, two in zip(*before)]
    if rank == 0:
        print(f"torch {torch.__version__}  {name:25}  A, B of each rank before {before}, after {after}, mean {mean}", flush=True)
    if name.startswith("A"):
        blend = (before[0][0] + before[1][1]) / 2
        assert after == [[blend, before[0][1]], [before[1][0], blend]], "changed: " + name
    else:
        assert after == [mean, mean], name + " is right"
dist.destroy_process_group()
EOF
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
timeout 200 "$dir/venv/bin/torchrun" --standalone --nproc-per-node 2 "$dir/program.py"
echo "the behaviour is as described"

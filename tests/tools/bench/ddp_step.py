"""Train eight layers under DDP and print the median seconds of a step: half of tests/tools/bench/ranks.py.

Usage: ddp_step.py WIDTH STEPS [--dispatched | --ledger], under torchrun or `dpdemo exec --ranks`. With
`--dispatched` every operator passes through a dispatch mode of PyTorch that only calls it: what a mode costs
at least. With `--ledger` it prints the share of a step that dpdemo's observers of steps take.
"""

import contextlib
import functools
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode


class Dispatched(TorchDispatchMode):
    """Calls each operator as it is."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Call the operator."""
        return func(*args, **kwargs) if kwargs else func(*args)


def timed(owner, *names):
    """Measure the seconds that some methods take from now on; return the sums, a list of one."""
    spent = [0.0]

    def measured(method):
        @functools.wraps(method)
        def call(*args, **kwargs):
            begun = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                spent[0] += time.perf_counter() - begun

        return call

    for name in names:
        setattr(owner, name, measured(getattr(owner, name)))
    return spent


width, steps = map(int, sys.argv[1:3])
device = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("nccl" if device == "cuda" else "gloo")
if device == "cuda":
    torch.cuda.set_device(dist.get_rank())
layers = [layer for _ in range(8) for layer in (nn.Linear(width, width), nn.ReLU())]
model = DistributedDataParallel(nn.Sequential(*layers).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
generator = torch.Generator().manual_seed(dist.get_rank())
rows = torch.randn(64, width, generator=generator).to(device)
seconds = []
sums = []
if "--ledger" in sys.argv:
    from dpdemo.ranks.observe.optimizers import OptimizerNotes
    from dpdemo.ranks.observe.training import TrainingNotes

    sums = [
        timed(TrainingNotes, "pass_begins", "pass_ended", "begins_step", "stepped", "collective"),
        timed(OptimizerNotes, "steps"),
    ]
with Dispatched() if "--dispatched" in sys.argv else contextlib.nullcontext():
    for _ in range(steps):
        begun = time.perf_counter()
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begun)
if dist.get_rank() == 0:
    share = sum(map(sum, sums)) / sum(seconds)
    print(share if sums else statistics.median(seconds[2:]), flush=True)
dist.destroy_process_group()
if device == "cpu":
    os._exit(0)  # an orderly exit aborts now and then (pytorch/pytorch#179291)

"""Train eight layers under DDP and print the median seconds of a step: half of tests/tools/bench/ranks.py.

Usage: ddp_step.py WIDTH STEPS [--dispatched | --ledger], under torchrun or `dpdemo exec --ranks`. With
`--dispatched` every operator passes through a dispatch mode of PyTorch that only calls it: what a mode costs
at least. With `--ledger` it prints the share of a step that dpdemo's observers take.
"""

import atexit
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


SPENT = {}
"""The seconds of each observer, by its name; one that another calls is a part of that."""


def measured(call):
    """Return a function that adds up the seconds it takes."""
    name = getattr(call, "__qualname__", type(call).__name__)

    @functools.wraps(call)
    def timed(*args, **kwargs):
        begun, inner = time.perf_counter(), sum(SPENT.values())
        try:
            return call(*args, **kwargs)
        finally:
            taken = time.perf_counter() - begun - (sum(SPENT.values()) - inner)
            SPENT[name] = SPENT.get(name, 0.0) + taken

    return timed


def measure_observers():
    """Measure from now on what dpdemo's observers of models, optimizers and collectives take."""
    from dpdemo.ranks.observe.optimizers import OptimizerNotes
    from dpdemo.ranks.observe.training import TrainingNotes
    from dpdemo.virtual.ops.collectives import listeners

    for owner, names in {
        TrainingNotes: ("forward", "pass_begins", "pass_ended", "begins_step", "stepped", "cleared"),
        OptimizerNotes: ("steps",),
    }.items():
        for name in names:
            setattr(owner, name, measured(getattr(owner, name)))
    timed = [(place, listener, measured(listener)) for place, listener in enumerate(listeners)]
    for place, listener, replacement in timed:
        listeners[place] = replacement
        atexit.register(listeners.__setitem__, place, listener)


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
if "--ledger" in sys.argv:
    measure_observers()
with Dispatched() if "--dispatched" in sys.argv else contextlib.nullcontext():
    for _ in range(steps):
        begun = time.perf_counter()
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begun)
if dist.get_rank() == 0:
    print(sum(SPENT.values()) / sum(seconds) if SPENT else statistics.median(seconds[2:]), flush=True)
dist.destroy_process_group()
if device == "cpu":
    os._exit(0)  # an orderly exit aborts now and then (pytorch/pytorch#179291)

"""Measure what virtual GPUs cost: each figure is a ratio of medians, taken in turns in one process.

Run it from the repository root: ``python bench/virtual.py``. Every line says what it compares and the bound it is to
keep; the exit code is 1 if one does not.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
from typing import TYPE_CHECKING

import torch
from torch import nn

from dpdemo.virtual import virtual_gpus

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 9
NUM_GPUS = 4


def encoder() -> nn.Module:
    """Build a 4-layer transformer encoder of width 256."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


def step(model: nn.Module, batch: torch.Tensor) -> None:
    """Run forward and backward once."""
    model(batch).square().mean().backward()
    model.zero_grad()


def chunks_by_hand(model: nn.Module, batch: torch.Tensor) -> None:
    """Do on the CPU what DataParallel does: a copy of the model for each chunk, and gradients added up."""
    copies = [copy.deepcopy(model) for _ in range(NUM_GPUS)]
    outputs = [one(chunk) for one, chunk in zip(copies, batch.chunk(NUM_GPUS), strict=True)]
    torch.cat(outputs).square().mean().backward()
    for parameters in zip(*(one.parameters() for one in copies), strict=True):
        sum(parameter.grad for parameter in parameters)


def in_turns(*works: Callable[[], None]) -> list[float]:
    """Return the median seconds of each of `works`, run in turns."""
    times: list[list[float]] = [[] for _ in works]
    for number in range(ROUNDS + 1):
        for work, taken in zip(works, times, strict=True):
            began = time.perf_counter()
            work()
            if number:  # the first round warms up
                taken.append(time.perf_counter() - began)
    return [statistics.median(taken) for taken in times]


def repeat(work: Callable[[], object], times: int) -> Callable[[], None]:
    """Return a function that does `work` so many times."""

    def repeated() -> None:
        for _ in range(times):
            work()

    return repeated


def report(what: str, value: float, bound: float, unit: str) -> bool:
    """Print one figure and tell whether it keeps its bound."""
    held = value <= bound
    print(f"{what:<68} {value:7.2f} {unit:<6} (at most {bound:g}){'' if held else '  NOT HELD'}")
    return held


def measure_ratios() -> list[bool]:
    """Compare one training step of the encoder on virtual GPUs with the same work on the CPU."""
    torch.manual_seed(0)
    on_cpu, batch = encoder(), torch.randn(32, 64, 256)
    with virtual_gpus(NUM_GPUS):
        on_gpu = copy.deepcopy(on_cpu).cuda()
        parallel = nn.DataParallel(copy.deepcopy(on_cpu).cuda())
        gpu_batch = batch.cuda()

    def cpu() -> None:
        step(on_cpu, batch)

    def hand() -> None:
        chunks_by_hand(on_cpu, batch)

    def inside(model: nn.Module) -> Callable[[], None]:
        return lambda: step(model, gpu_batch)

    return []


if __name__ == "__main__":
    sys.exit(0 if all(measure_ratios()) else 1)

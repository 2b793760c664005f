"""Measure what unequal splits cost: ratios of medians, taken in turns in one process (run this file).

Times are the processor's, of one thread: a busy machine changes them little. Each line says what is compared
and the bound that it is to keep; the exit code is 1 if one does not.
"""

from __future__ import annotations

import copy
import statistics
import sys
from typing import TYPE_CHECKING

import torch
from quick import rounds
from ratios import NUM_GPUS, encoder, report, seconds, step
from torch import nn

from dpdemo import WeightedDataParallel
from dpdemo.virtual import virtual_gpus

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = rounds(15)


def ratio(first: Callable[[], object], other: Callable[[], object], times: int = 1) -> float:
    """Return the median, over rounds, of the time of one over that of the other, taken in turns."""
    first(), other()
    return statistics.median(seconds(first, times) / seconds(other, times) for _ in range(ROUNDS))


def of_calls(model: nn.Module, batch: torch.Tensor, times: int) -> float:
    """Compare a step with even weights with DataParallel's on virtual GPUs, where both cut alike."""
    with virtual_gpus(NUM_GPUS):
        moved, inputs = copy.deepcopy(model).cuda(), batch.cuda()
        weighted, plain = WeightedDataParallel(moved, weights=[1] * NUM_GPUS), nn.DataParallel(moved)
        return ratio(lambda: step(weighted, inputs), lambda: step(plain, inputs), times)


def main() -> int:
    """Measure and report."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    small = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8))
    print(f"torch {torch.__version__}, one thread, medians of {ROUNDS} rounds, {NUM_GPUS} virtual GPUs")
    held = [
        report(
            "transformer encoder, WeightedDataParallel ÷ DataParallel",
            of_calls(encoder(2, 128), torch.randn(16, 32, 128), 1),
            1.05,
        ),
        report(
            "two linear layers, WeightedDataParallel ÷ DataParallel",
            of_calls(small, torch.randn(32, 32), 30),
            1.05,
        ),
    ]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())

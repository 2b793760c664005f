"""What CUDA's random numbers cost on a virtual GPU, against the CPU's: processor time, taken in turns.

Run by hand, with how many numbers are drawn: `python tests/tools/bench/random_numbers.py 10000000`.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import torch
from quick import QUICK, rounds

from dpdemo.virtual import virtual_gpus

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = rounds(7)


def seconds(draw: Callable[[str], Any], device: str) -> float:
    """Return the processor's time of one call."""
    begin = time.process_time()
    draw(device)
    return time.process_time() - begin


def main(count: int) -> None:
    """Print each function's times, and how many times the CPU's its own is."""
    torch.set_num_threads(1)
    ones = {"cpu": torch.ones(count)}
    draws = {
        "rand": lambda device: torch.rand(count, device=device),
        "randn": lambda device: torch.randn(count, device=device),
        "randint": lambda device: torch.randint(1000, (count,), device=device),
        "dropout": lambda device: torch.dropout(ones[device], 0.1, True),
    }
    with virtual_gpus(1):
        ones["cuda"] = ones["cpu"].cuda()
        for name, draw in draws.items():
            pairs = [[seconds(draw, device) for device in ("cpu", "cuda")] for _ in range(ROUNDS)]
            cpu, gpu = (statistics.median(times) for times in zip(*pairs, strict=True))
            print(f"{name:8} CPU {cpu * 1e3:8.2f} ms   GPU {gpu * 1e3:8.2f} ms   {gpu / cpu:.2f} times")


if __name__ == "__main__":
    main(10**5 if QUICK else int(sys.argv[1]) if len(sys.argv) > 1 else 10**7)

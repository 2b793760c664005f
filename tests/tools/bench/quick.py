"""Shared by the benchmarks: `--quick`, a clock, medians of work done in turns, and the line of a figure."""

import statistics
import sys
import time
from collections.abc import Callable

QUICK = "--quick" in sys.argv
"""Run once on small inputs, only to see that the benchmark still runs."""


def rounds(many: int) -> int:
    """Return how often to measure: once with --quick."""
    return 1 if QUICK else many


def seconds(work: Callable[[], object], times: int = 1) -> float:
    """Return the processor's time for so many calls, which a busy machine changes little."""
    began = time.process_time()
    for _ in range(times):
        work()
    return time.process_time() - began


def medians(many: int, *works: Callable[[], object], clock: Callable[..., float] = seconds) -> list[float]:
    """Return the median time of each piece of work: all take turns, and a first round warms up.

    With --quick that round is the only one.
    """
    turns = [[clock(work) for work in works] for _ in range(1 if QUICK else many + 1)]
    turns = turns[1:] or turns
    return [statistics.median(column) for column in zip(*turns, strict=True)]


def line(what: str, value: float, bound: float, shown: str = "") -> None:
    """Print one figure beside the most that it may be."""
    verdict = "met" if value <= bound else "MISSED"
    print(f"{what:<70} {shown:>10} {value:8.3f}  (at most {bound:g}) {verdict}", flush=True)

"""The data of the offline page: the case that it opens with, and golden cases.

The page computes for itself, in the browser; it compares itself with the golden cases when it opens.
"""

from dataclasses import dataclass

Given = tuple[int, int, int, bool, int]
"""Batch size, data size, number of GPUs, drop_last, and the sample to follow."""
Group = tuple[int, int, int, int, float, float, tuple[tuple[int, int, int], ...]]
"""First batch, how many, their size, idle GPUs, utilization, sample weight, and runs of equal chunks.

A run is its first GPU, how many GPUs, and the rows of each.
"""
Sums = tuple[int, int, float, float | None]
"""Batches, samples, utilization and sample weight of the epoch."""
Stop = tuple[int, int, int, int]
"""The way of the sample: batch, GPU, row on that GPU, row of the output."""
Answer = tuple[tuple[Group, ...], Sums, Stop | None]


@dataclass(frozen=True, slots=True)
class Lesson:
    """The case that the page opens with, and golden cases of `simulate`."""

    batch: int
    data: int
    gpus: int
    drop_last: bool
    cases: tuple[tuple[Given, Answer], ...]

"""What the offline page is made of: the case that it opens with, a model's bytes, and golden cases.

The page computes for itself, in the browser; the golden cases are what it is compared with when it opens.
"""

from dataclasses import dataclass

Given = tuple[int, int, int, bool, tuple[int, ...] | None, int]
"""Batch size, data size, number of GPUs, drop_last, whole weights or None, and the sample to follow."""
Group = tuple[int, int, int, int, float, float, tuple[tuple[int, int, int], ...]]
"""First batch, how many, their size, idle GPUs, utilization, sample weight, and runs of equal chunks.

A run is its first GPU, how many GPUs, and the rows of each.
"""
Sums = tuple[int, int, float, float | None]
"""Batches, samples, utilization and sample weight of the epoch."""
Stop = tuple[int, int, int, int]
"""Where the sample goes: batch, GPU, row on that GPU, row of the output."""
Answer = tuple[tuple[Group, ...], Sums, Stop | None]


@dataclass(frozen=True, slots=True)
class ModelBytes:
    """What DataParallel copies of a model: bytes of a sample's input and output, and of a replica.

    A number is None where it was not counted; `source` says where they are from.
    """

    name: str
    input_bytes: int | None
    output_bytes: int | None
    module_bytes: int | None
    source: str


@dataclass(frozen=True, slots=True)
class Start:
    """The case that the page opens with; `weights` as a user writes them, "" for torch's own rule."""

    batch: int
    data: int
    gpus: int
    drop_last: bool
    weights: str


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """What one GPU holds at its fullest moment, when, and what for; `phases` has its most in each phase."""

    device: str
    rows: int
    peak: int
    phase: str
    parts: tuple[tuple[str, int], ...]
    phases: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PredictedMemory:
    """What `dpdemo memory` predicted of a model for one batch."""

    model: str
    batch: int
    gpus: tuple[HeldBytes, ...]


@dataclass(frozen=True, slots=True)
class Lesson:
    """All that the page needs to know."""

    start: Start
    model: ModelBytes
    cases: tuple[tuple[Given, Answer], ...]
    memory: PredictedMemory | None = None

"""The lines of a memory report: GPUs that hold the same together, so that 64 GPUs are a few lines."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dpdemo.results.memorydata import PARTS, GpuMemory, MemoryData

_MOST_SPANS = 3
"""A label names up to this many spans of ordinals; the numbers of more are cut short and counted."""


@dataclass(frozen=True, slots=True)
class GpuLine:
    """A GPU, or `count` of them with the same rows, parts, phase and capacity; `gpu` is the first of them."""

    label: str
    count: int
    gpu: GpuMemory


def gpu_lines(report: MemoryData) -> list[GpuLine]:
    """Group the GPUs that hold the same, in the order of the first of each group."""
    alike: dict[GpuMemory, list[GpuMemory]] = {}
    for gpu in report.gpus:
        alike.setdefault(replace(gpu, device=""), []).append(gpu)
    return [GpuLine(label([gpu.device for gpu in gpus]), len(gpus), gpus[0]) for gpus in alike.values()]


def label(names: Sequence[str]) -> str:
    """Name several devices: `cuda:1–3`, `cuda:0, 2–4`, or `cuda:0, 2, 4, ... (32 GPUs)`."""
    kind, _, _ = names[0].partition(":")
    spans = list(_spans(sorted(int(name.partition(":")[2]) for name in names)))
    shown = ", ".join(spans[:_MOST_SPANS])
    return f"{kind}:{shown}" + (f", ... ({len(names)} GPUs)" if len(spans) > _MOST_SPANS else "")


def _spans(ordinals: Sequence[int]) -> Iterator[str]:
    for _, run in itertools.groupby(enumerate(ordinals), key=lambda each: each[1] - each[0]):
        members = [ordinal for _, ordinal in run]
        yield str(members[0]) if len(members) == 1 else f"{members[0]}–{members[-1]}"


def used_parts(report: MemoryData) -> list[int]:
    """Return the positions in PARTS of parts that any GPU has at its fullest moment."""
    return [part for part in range(len(PARTS)) if any(gpu.parts[part] for gpu in report.gpus)]

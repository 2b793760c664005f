"""One line for each device, or for each run of equal devices when there are many.

The table and the Markdown show these same lines.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from dpdemo.render.split.ranks import MANY, labels
from dpdemo.reports.devices import Devices, Tiled
from dpdemo.reports.split import BatchGroup, Shapes, SplitReport


class Splits(Protocol):
    """What tables are drawn of: groups of batches over some devices, as in a `SplitReport`."""

    @property
    def devices(self) -> Devices:
        """All devices asked for, in replica order."""

    @property
    def wrapped(self) -> str:
        """The submodule inside DataParallel, "" when it is the whole model."""

    @property
    def batches(self) -> tuple[BatchGroup, ...]:
        """The groups."""


@dataclass(frozen=True, slots=True)
class Line:
    """What one device, or each of `count` equal ones, has in a batch; an idle one has no rows."""

    label: str
    count: int
    rows: int
    input: Shapes = ()
    output: Shapes = ()
    is_idle: bool = False


def group_lines(report: Splits, group: BatchGroup) -> Iterator[Line]:
    """Yield the lines of one group of batches: the replicas in their order, then the idle devices."""
    if isinstance(report, SplitReport) and report.distribution is not None:
        for run in group.in_model:
            for label, count in labels(report.distribution, run):
                yield Line(label, count, run.rows, run.input, run.output)
        return
    # of a whole epoch, a few devices have a line each
    many = len(report.devices) > MANY or not isinstance(report, SplitReport)
    shared = has_shared_devices(report.devices)
    for run in group.in_model:
        for start, part in _parts(run.devices, many=many):
            first = run.first + start
            label = _name(part) + (_replicas(first, len(part)) if shared else "") + _times(part)
            yield Line(label, len(part), run.rows, run.input, run.output)
    for _, part in _parts(group.idle, many=many):
        yield Line(_name(part) + _times(part), len(part), 0, is_idle=True)


def has_shared_devices(devices: Devices) -> bool:
    """Return whether several replicas lie on one device, as with `--gpus 0,0,0`."""
    return num_distinct(devices) < len(devices)


def num_distinct(devices: Devices) -> int:
    """Count the devices, each once."""
    ordinals = devices.ordinals.pattern if isinstance(devices.ordinals, Tiled) else devices.ordinals
    return len(ordinals) if isinstance(ordinals, range) else len(set(ordinals))


def _parts(devices: Devices, *, many: bool) -> Iterator[tuple[int, Devices]]:
    if isinstance(devices.ordinals, range) and many:
        if devices:
            yield 0, devices
        return
    starts = _stretches(devices.ordinals) if many else range(len(devices))
    edges = [*starts, len(devices)]
    for start, end in itertools.pairwise(edges):
        yield start, devices[start:end]


def _stretches(ordinals: Sequence[int]) -> Iterator[int]:
    """Yield where each stretch begins: ordinals that all rise by one, all fall by one, or all stay."""
    step: int | None = None
    for index, ordinal in enumerate(ordinals):
        change = ordinal - ordinals[index - 1] if index else None
        if step is None and change in (-1, 0, 1):
            step = change
        elif change is None or change != step:
            step = None
            yield index


def _name(part: Devices) -> str:
    first, last = part.ordinals[0], part.ordinals[-1]
    return part.name(0) if first == last else f"{part.name(0)}–{last}"


def _replicas(first: int, count: int) -> str:
    return f" (replica {first})" if count == 1 else f" (replicas {first}–{first + count - 1})"


def _times(part: Devices) -> str:
    return f" × {len(part)}" if len(part) > 1 else ""

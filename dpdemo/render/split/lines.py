"""One line for each device, or for each run of equal devices when there are many.

The table and the Markdown show these same lines.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from dpdemo.render.split.ranks import MANY, ranks_label, share_line
from dpdemo.reports.devices import Devices, is_stretch, ordinal_of
from dpdemo.reports.split import BatchGroup, Replica, Shapes, SplitReport

_T = TypeVar("_T")


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
        for run in _runs(group.in_model, partial(share_line, report.distribution)):
            yield _line(ranks_label(report.distribution, run), run)
        return
    # of a whole epoch, a few devices have a line each
    is_short = len(report.devices) <= MANY and isinstance(report, SplitReport)
    together = _never if is_short else _is_stretch
    shared = has_shared_devices(report.devices)
    for run in _runs(group.in_model, together):
        names = [replica.device for replica in run]
        label = _name(names) + (_replicas(run) if shared else "") + _times(names)
        yield _line(label, run)
    for idle in _parts(group.idle, together):
        yield Line(_name(idle) + _times(idle), len(idle), 0, is_idle=True)


def _line(label: str, run: Sequence[Replica]) -> Line:
    first = run[0]
    return Line(label, len(run), first.rows, first.input, first.output)


def has_shared_devices(devices: Devices) -> bool:
    """Return whether several replicas lie on one device, as with `--gpus 0,0,0`."""
    return num_distinct(devices) < len(devices)


def num_distinct(devices: Devices) -> int:
    """Count the devices, each once."""
    return len(set(devices))


def _runs(
    replicas: Iterable[Replica], together: Callable[[Sequence[Replica]], bool]
) -> Iterator[list[Replica]]:
    """Yield neighbours that are equal but for their device, and that `together` lets share a line."""
    for _, alike in itertools.groupby(
        replicas, key=lambda replica: (replica.rows, replica.input, replica.output)
    ):
        yield from _parts(alike, together)


def _parts(members: Iterable[_T], together: Callable[[Sequence[_T]], bool]) -> Iterator[list[_T]]:
    part: list[_T] = []
    for member in members:
        if part and not together([*part[-2:], member]):
            yield part
            part = []
        part.append(member)
    if part:
        yield part


def _never(_: Sequence[object]) -> bool:
    return False


def _is_stretch(members: Sequence[Replica | str]) -> bool:
    return is_stretch([member if isinstance(member, str) else member.device for member in members])


def _name(names: Sequence[str]) -> str:
    return names[0] if names[0] == names[-1] else f"{names[0]}–{ordinal_of(names[-1])}"


def _replicas(run: Sequence[Replica]) -> str:
    first, last = run[0].replica, run[-1].replica
    return f" (replica {first})" if first == last else f" (replicas {first}–{last})"


def _times(names: Sequence[str]) -> str:
    return f" × {len(names)}" if len(names) > 1 else ""

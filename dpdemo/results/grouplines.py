"""One line for each device, or for each run of equal devices when there are many.

The table and the Markdown show these same lines.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from dpdemo.results.batches import BatchGroup, Replica, Shapes, bracketed
from dpdemo.results.devices import Devices, is_stretch, ordinal_of
from dpdemo.results.distribution import Distribution
from dpdemo.results.rankwords import MANY, ranks_label, share_line
from dpdemo.wording import printable

_T = TypeVar("_T")


@dataclass(frozen=True)
class Groups:
    """Groups of batches over some devices, to be drawn below each other.

    Of a whole epoch (`is_epoch`) a few devices have a line each.
    """

    devices: Devices
    batches: tuple[BatchGroup, ...]
    wrapped: str = ""
    distribution: Distribution | None = None
    is_epoch: bool = False

    @property
    def inside(self) -> str:
        """Head the column of the replicas: `In Model`, or `In Model (block2)`."""
        return f"In Model ({printable(self.wrapped)})" if self.wrapped else "In Model"

    @property
    def of_outside(self) -> str:
        """Name the rank whose loop Outside shows, where there are several."""
        return ", on rank 0" if self.distribution and len(self.devices) > 1 else ""


@dataclass(frozen=True, slots=True)
class DeviceLine:
    """The chunk of one device, or of each of `count` equal ones; an idle one has no rows."""

    label: str
    count: int
    rows: int
    input: Shapes = ()
    output: Shapes = ()
    is_idle: bool = False

    def shapes(self, *, one_line: bool) -> str:
        """Write `[10, 5] → [10, 2]`, or a line per tensor with an arrow before the first that comes out."""
        if self.is_idle:
            return ""
        given, (first, *others) = bracketed(self.input, printable), bracketed(self.output, printable)
        if one_line:
            return f"{', '.join(given)} → {', '.join([first, *others])}"
        return "\n".join((*given, f"→ {first}", *(f"  {other}" for other in others)))


def group_lines(groups: Groups, group: BatchGroup) -> Iterator[DeviceLine]:
    """Yield the lines of one group of batches: the replicas in their order, then the idle devices."""
    if groups.distribution is not None:
        for run in _runs(group.in_model, partial(share_line, groups.distribution)):
            yield _line(ranks_label(groups.distribution, run), run)
        return
    together = _never if groups.is_epoch and len(groups.devices) <= MANY else _is_stretch
    shared = len(set(groups.devices)) < len(groups.devices)
    for run in _runs(group.in_model, together):
        names = [replica.device for replica in run]
        label = _name(names) + (_replicas(run) if shared else "") + _times(names)
        yield _line(label, run)
    for idle in _parts(group.idle, together):
        yield DeviceLine(_name(idle) + _times(idle), len(idle), 0, is_idle=True)


def _line(label: str, run: Sequence[Replica]) -> DeviceLine:
    first = run[0]
    return DeviceLine(label, len(run), first.rows, first.input, first.output)


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

"""The table of groups of batches: a line for each device, or for each run of equal ones when there are many.

A line has a bar, the input and the output; below is the view from outside. Markdown shows the same lines.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from dpdemo.results.bars import IDLE, SHORT, bar, bar_heading
from dpdemo.results.batches import BatchGroup, Replica, Shapes, bracketed
from dpdemo.results.devices import Devices, is_stretch, ordinal_of
from dpdemo.results.distribution import Distribution
from dpdemo.results.rankwords import MANY, ranks_label, share_line
from dpdemo.results.table import GAP, Block, Canvas, Table, styled, text_width
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


class _Layout(NamedTuple):
    """Widths of the columns; a bar of 0 is left out."""

    label: int
    rows: int
    shapes: int
    bar: int
    one_line: bool


class GroupTable:
    """The tables of groups of batches, for a canvas; all of them line up."""

    def __init__(self, groups: Groups, canvas: Canvas) -> None:
        self._groups = groups
        self._canvas = canvas
        self._layout = self._choose()

    def blocks(self, group: BatchGroup) -> Iterator[Block]:
        """Yield the devices of a group of batches, and the view from outside."""
        yield self._table(group)
        if group.outside.input or group.outside.output:  # else only the replicas were seen
            yield self._outside(group)

    def _choose(self) -> _Layout:
        """Choose the roomiest layout: all on one line; input and output on lines of their own; no bar."""
        label, rows, on_one = self._widths(one_line=True)
        *_, many = self._widths(one_line=False)
        room = self._canvas.width - label - rows - 2 * GAP
        headed = max(on_one, text_width(self._heading(self._canvas.width)))
        for shapes, one_line in ((headed, True), (on_one, True), (many, False)):
            if bar := self._canvas.bar_width(room - shapes - GAP):
                return _Layout(label, rows, shapes, bar, one_line)
        if on_one <= room:
            return _Layout(label, rows, on_one if self._canvas.draws_bars else headed, 0, one_line=True)
        columns = self._canvas.width - rows - 2 * GAP  # what is longer is folded
        label = max(1, min(label, columns - min(many, columns // 2)))
        return _Layout(label, rows, max(1, min(many, columns - label)), 0, one_line=False)

    def _widths(self, *, one_line: bool) -> list[int]:
        """Measure the columns of all groups."""
        table = Table(("keep", "keep", "keep"), head=(styled("Outside"), styled("rows"), styled("output")))
        for group in self._groups.batches:
            for line in group_lines(self._groups, group):
                table.add(styled(line.label), styled(_rows(line)), styled(line.shapes(one_line=one_line)))
        return table.widths(self._canvas)

    def _heading(self, width: int) -> str:
        whole = f"{self._groups.inside}: input → output"
        if len(whole) <= width:
            return whole
        view, of, rest = whole.rpartition(": ")
        return f"{view}{of.strip()}\n{rest if len(rest) <= width else rest.replace(' ', chr(10), 1)}"

    def _table(self, group: BatchGroup) -> Table:
        layout, lines = self._layout, list(group_lines(self._groups, group))
        head = ("device", "rows".rjust(layout.rows), self._heading(layout.shapes))
        table = Table(
            (layout.label, "right", layout.shapes),
            head=tuple(styled(name, "dim") for name in head),
            has_rule=True,
        )
        for line in lines:
            style = IDLE if line.is_idle else SHORT if line.rows < group.largest else ""
            shapes = styled(line.shapes(one_line=layout.one_line), IDLE if line.is_idle else "")
            table.add(styled(line.label, style), styled(_rows(line).rjust(layout.rows), style), shapes)
        bars = (bar(line.rows, group.largest, layout.bar) for line in lines)
        return table.with_bars(3, bars, layout.bar, bar_heading(layout.bar))

    def _outside(self, group: BatchGroup) -> Table:
        outside = group.outside
        before = f"{', '.join(bracketed(outside.input, printable))} on {outside.input_device}"
        after = (
            f"{', '.join(bracketed(outside.output, printable))} on {outside.device}{self._groups.of_outside}"
        )
        label = max(self._layout.label, len("Outside"))
        room = self._canvas.width - label - GAP
        joint = " " if len(f"{before} → {after}") <= room else "\n"
        table = Table((label, "fold"))
        table.add(styled("Outside", "bold"), styled(f"{before}{joint}→ {after}"))
        return table


def _rows(line: DeviceLine) -> str:
    return "idle" if line.is_idle else str(line.rows)

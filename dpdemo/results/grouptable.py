"""The table of groups of batches: a line for each device, or for each run of equal ones when there are many.

A line has a bar, the input and the output; below is the view from outside. Markdown shows the same lines.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dpdemo.results.bars import IDLE, SHORT, bar, bar_heading
from dpdemo.results.batches import BatchGroup, Replica, Shapes, bracketed
from dpdemo.results.devices import Devices, is_stretch, ordinal_of
from dpdemo.results.distribution import Distribution
from dpdemo.results.rankwords import MANY, ranks_label, share_line
from dpdemo.results.table import GAP, Block, Canvas, Table, natural_width, stacked, styled, text_width
from dpdemo.wording import printable


@dataclass(frozen=True, slots=True)
class DeviceLine:
    """The chunk of one device, or of each of `count` equal ones; an idle one has no rows."""

    label: str
    count: int
    rows: int
    input: Shapes = ()
    output: Shapes = ()
    is_idle: bool = False

    @property
    def number(self) -> str:
        """Its rows in the table."""
        return "idle" if self.is_idle else str(self.rows)

    def shapes(self, *, one_line: bool) -> list[str]:
        """Write `[10, 5] → [10, 2]`, or a line per tensor with an arrow before the first that comes out."""
        if self.is_idle:
            return [""]
        given, (first, *others) = bracketed(self.input), bracketed(self.output)
        if one_line:
            return [f"{', '.join(given)} → {', '.join([first, *others])}"]
        return [*given, f"→ {first}", *(f"  {other}" for other in others)]


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

    def lines(self, group: BatchGroup) -> Iterator[DeviceLine]:
        """Yield the lines of one group of batches: the replicas in their order, then the idle devices."""
        alike = itertools.groupby(group.in_model, lambda each: (each.rows, each.input, each.output))
        for (rows, given, made), replicas in alike:
            for run in _parts(list(replicas), self._share_line):
                yield DeviceLine(self._label(run), len(run), rows, given, made)
        waiting = [Replica(0, device, 0, (), ()) for device in group.idle]
        for run in _parts(waiting, self._share_line):
            yield DeviceLine(_names(run), len(run), 0, is_idle=True)

    def _share_line(self, members: Sequence[Replica]) -> bool:
        """Return whether equal neighbours share a line."""
        if self.distribution is not None:
            return share_line(self.distribution, members)
        is_short = self.is_epoch and len(self.devices) <= MANY
        return not is_short and is_stretch([member.device for member in members])

    def _label(self, run: Sequence[Replica]) -> str:
        if self.distribution is not None:
            return ranks_label(self.distribution, run)
        if len(set(self.devices)) == len(self.devices):
            return _names(run)
        first, last = run[0].replica, run[-1].replica
        numbers = f"replica {first}" if first == last else f"replicas {first}–{last}"
        return _names(run, f" ({numbers})")


def _names(run: Sequence[Replica], numbers: str = "") -> str:
    """Write `cuda:3`, or `cuda:0–9 × 10`."""
    first, last = run[0].device, run[-1].device
    stop = "" if first == last else f"–{ordinal_of(last)}"
    times = f" × {len(run)}" if len(run) > 1 else ""
    return f"{first}{stop}{numbers}{times}"


def _parts(
    members: Iterable[Replica], together: Callable[[Sequence[Replica]], bool]
) -> Iterator[list[Replica]]:
    """Yield neighbours that `together` lets share a line."""
    part: list[Replica] = []
    for member in members:
        if part and not together([*part[-2:], member]):
            yield part
            part = []
        part.append(member)
    if part:
        yield part


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
        table = Table(("keep", "keep", "keep"), head=("Outside", "rows", "output"))
        for group in self._groups.batches:
            for line in self._groups.lines(group):
                table.add(line.label, line.number, stacked(line.shapes(one_line=one_line)))
        return table.widths(self._canvas)

    def _heading(self, width: int) -> str:
        """Head the column of the replicas: `In Model: input → output`, or `In Model (block2): ...`."""
        wrapped = self._groups.wrapped and f" ({printable(self._groups.wrapped)})"
        whole = f"In Model{wrapped}: input → output"
        if len(whole) <= width:
            return whole
        view, of, rest = whole.rpartition(": ")
        return f"{view}{of.strip()}\n{rest if len(rest) <= width else rest.replace(' ', chr(10), 1)}"

    def _table(self, group: BatchGroup) -> Table:
        layout, lines = self._layout, list(self._groups.lines(group))
        head = ("device", "rows".rjust(layout.rows), self._heading(layout.shapes))
        table = Table((layout.label, "right", layout.shapes), head=head, has_rule=True)
        for line in lines:
            style = IDLE if line.is_idle else SHORT if line.rows < group.largest else ""
            shapes = stacked(line.shapes(one_line=layout.one_line), IDLE if line.is_idle else "")
            table.add(styled(line.label, style), styled(line.number.rjust(layout.rows), style), shapes)
        bars = (bar(line.rows, group.largest, layout.bar) for line in lines)
        return table.with_bars(3, bars, layout.bar, bar_heading(layout.bar))

    def _outside(self, group: BatchGroup) -> Table:
        groups, outside = self._groups, group.outside
        loop = ", on rank 0" if groups.distribution and len(groups.devices) > 1 else ""
        before = f"{', '.join(bracketed(outside.input))} on {outside.input_device}"
        after = f"{', '.join(bracketed(outside.output))} on {outside.device}{loop}"
        label = max(self._layout.label, len("Outside"))
        room = self._canvas.width - label - GAP
        line = styled(f"{before} → {after}")
        if natural_width(self._canvas.fitted(line)) > room:
            line = stacked([before, f"→ {after}"])
        table = Table((label, "fold"))
        table.add(styled("Outside", "bold"), line)
        return table

"""The table of groups of batches: a bar for each device, its input and output, and the view from outside."""

from collections.abc import Iterator
from typing import NamedTuple

from dpdemo.results.bars import IDLE, SHORT, bar, bar_heading
from dpdemo.results.batches import BatchGroup, bracketed
from dpdemo.results.grouplines import DeviceLine, Groups, group_lines
from dpdemo.results.table import GAP, Block, Canvas, Table, styled, text_width
from dpdemo.wording import printable


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

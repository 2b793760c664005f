"""The table of groups of batches: a bar for each device, its input and output, and the view from outside."""

from collections.abc import Iterator
from typing import NamedTuple

from dpdemo.results.bars import IDLE, SHORT, bar, bar_heading
from dpdemo.results.batches import BatchGroup, Shapes, bracketed
from dpdemo.results.grouplines import DeviceLine, Groups, group_lines
from dpdemo.results.table import GAP, Block, Canvas, Column, Table, styled, text_width
from dpdemo.wording import printable


class _Cells(NamedTuple):
    """One line of a table as text: the tensors that go in and come out, none for an idle device."""

    label: str
    rows: str
    input: tuple[str, ...]
    output: tuple[str, ...]

    def on_one_line(self) -> str:
        """Write `[10, 5] → [10, 2]`."""
        return f"{', '.join(self.input)} → {', '.join(self.output)}" if self.input else ""

    def on_lines(self) -> tuple[str, ...]:
        """Write a line per tensor, with an arrow before the first that comes out."""
        if not self.input:
            return ()
        first, *others = self.output
        return (*self.input, f"→ {first}", *(f"  {other}" for other in others))


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
        lines = [line for group in self._groups.batches for line in group_lines(self._groups, group)]
        cells = [self._cells(line) for line in lines]
        label = max([len("Outside"), *(text_width(cell.label) for cell in cells)])
        rows = max([len("rows"), *(text_width(cell.rows) for cell in cells)])
        on_one = max([len("output"), *(text_width(cell.on_one_line()) for cell in cells)])
        many = max([len("output"), *(text_width(line) for cell in cells for line in cell.on_lines())])
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

    def _heading(self, width: int) -> str:
        whole = f"{self._groups.inside}: input → output"
        if len(whole) <= width:
            return whole
        view, of, rest = whole.rpartition(": ")
        return f"{view}{of.strip()}\n{rest if len(rest) <= width else rest.replace(' ', chr(10), 1)}"

    def _cells(self, line: DeviceLine) -> _Cells:
        return _Cells(
            label=line.label,
            rows="idle" if line.is_idle else str(line.rows),
            input=() if line.is_idle else self._shapes(line.input),
            output=self._shapes(line.output),
        )

    def _shapes(self, shapes: Shapes) -> tuple[str, ...]:
        return bracketed(shapes, printable)

    def _table(self, group: BatchGroup) -> Table:
        layout, bars = self._layout, [bar_heading(self._layout.bar)] if self._layout.bar else []
        names = ["device", "rows".rjust(layout.rows), self._heading(layout.shapes), *bars]
        columns: list[Column] = [layout.label, "right", layout.shapes]
        columns += [layout.bar] if bars else []
        table = Table(columns, head=tuple(styled(name, "dim") for name in names), has_rule=True)
        for line in group_lines(self._groups, group):
            cells = self._cells(line)
            style = IDLE if line.is_idle else SHORT if line.rows < group.largest else ""
            shapes = cells.on_one_line() if layout.one_line else "\n".join(cells.on_lines())
            drawn = [bar(line.rows, group.largest, layout.bar)] if bars else []
            shape_style = IDLE if line.is_idle else ""
            rows = cells.rows.rjust(layout.rows)
            table.add(styled(cells.label, style), styled(rows, style), styled(shapes, shape_style), *drawn)
        return table

    def _outside(self, group: BatchGroup) -> Table:
        outside = group.outside
        before = f"{', '.join(self._shapes(outside.input))} on {outside.input_device}"
        after = f"{', '.join(self._shapes(outside.output))} on {outside.device}{self._groups.of_outside}"
        label = max(self._layout.label, len("Outside"))
        room = self._canvas.width - label - GAP
        joint = " " if len(f"{before} → {after}") <= room else "\n"
        table = Table((label, "fold"))
        table.add(styled("Outside", "bold"), styled(f"{before}{joint}→ {after}"))
        return table

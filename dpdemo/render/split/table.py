"""The table for people: a bar for each device, what it received and returned, and the sums in words."""

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dpdemo.render.console import ASCII_HEAD, GAP, Canvas, grid
from dpdemo.render.layout import Cells, choose
from dpdemo.render.shapes import bracketed
from dpdemo.render.split import words
from dpdemo.render.split.bars import IDLE, SHORT, bar, heading
from dpdemo.render.split.lines import Line, Splits, group_lines
from dpdemo.render.split.tokens import token_tables
from dpdemo.reports.split import BatchGroup, Shapes, SplitReport
from dpdemo.wording import printable


class GroupPicture:
    """The tables of groups of batches, for a canvas; all of them line up."""

    def __init__(self, report: Splits, canvas: Canvas) -> None:
        self._report = report
        self._canvas = canvas
        self._layout = choose(self._all_cells(), self._heading(canvas.width), canvas.width)

    def group(self, group: BatchGroup) -> Iterator[RenderableType]:
        """Yield what reached each device in a group of batches, and what was seen outside."""
        yield self._table(group)
        if group.outside.input or group.outside.output:  # else only the replicas were seen
            yield self._outside(group)

    def _heading(self, width: int) -> str:
        whole = self._canvas.fit(f"{words.inside(self._report)}: input → output")
        if len(whole) <= width:
            return whole
        view, of, rest = whole.rpartition(": ")
        return f"{view}{of.strip()}\n{rest if len(rest) <= width else rest.replace(' ', chr(10), 1)}"

    def _all_cells(self) -> Iterator[Cells]:
        for group in self._report.batches:
            for line in group_lines(self._report, group):
                yield self._cells(line)

    def _cells(self, line: Line) -> Cells:
        return Cells(
            label=self._canvas.fit(line.label),
            rows="idle" if line.is_idle else str(line.rows),
            input=() if line.is_idle else self._shapes(line.input),
            output=self._shapes(line.output),
            arrow=self._canvas.fit("→"),
            count=line.count,
        )

    def _shapes(self, shapes: Shapes) -> tuple[str, ...]:
        return tuple(map(self._canvas.fit, bracketed(shapes, printable)))

    def _table(self, group: BatchGroup) -> Table:
        table = self._empty_table()
        for line in group_lines(self._report, group):
            cells = self._cells(line)
            style = IDLE if line.is_idle else ""
            if self._layout.stacked:
                table.add_row(_stacked(cells), style=style)
            else:
                table.add_row(*self._columns(cells, line, group), style=style)
        return table

    def _empty_table(self) -> Table:
        layout = self._layout
        box = ASCII_HEAD if self._canvas.is_ascii else SIMPLE_HEAD
        table = Table(
            box=box,
            show_edge=False,
            pad_edge=False,
            padding=(0, GAP - 1, 0, 0),
            header_style="dim",
            border_style="dim",
        )
        if layout.stacked:
            table.add_column(Text(self._heading(layout.shapes)), width=layout.shapes, overflow="fold")
            return table
        table.add_column(Text("device"), width=layout.label, overflow="fold")
        table.add_column(Text("rows"), width=layout.rows, justify="right", overflow="fold")
        table.add_column(Text(self._heading(layout.shapes)), width=layout.shapes, overflow="fold")
        if layout.bar:
            table.add_column(Text(heading(layout.bar)), width=layout.bar)
        return table

    def _columns(self, cells: Cells, line: Line, group: BatchGroup) -> Iterator[RenderableType]:
        layout = self._layout
        style = SHORT if 0 < line.rows < group.largest else ""
        yield Text(cells.label, style)
        yield Text(cells.rows, style)
        yield Text(cells.on_one_line() if layout.one_line else "\n".join(cells.on_lines()))
        if layout.bar:
            yield bar(line.rows, group.largest, layout.bar, ascii_only=self._canvas.is_ascii)

    def _outside(self, group: BatchGroup) -> Table:
        outside = group.outside
        before = f"{', '.join(self._shapes(outside.input))} on {outside.input_device}"
        after = (
            f"{', '.join(self._shapes(outside.output))} on {outside.device}{words.outside_of(self._report)}"
        )
        arrow = self._canvas.fit("→")
        label = max(self._layout.label if not self._layout.stacked else 0, len("Outside"))
        room = self._canvas.width - label - GAP
        joint = " " if len(before) + len(after) + len(arrow) + 2 <= room else "\n"
        table = grid(label, "fold")
        table.add_row(Text("Outside", "bold"), Text(f"{before}{joint}{arrow} {after}"))
        return table


class Picture(GroupPicture):
    """The parts of a report's picture."""

    _report: SplitReport

    def parts(self, *, verbose: bool) -> Iterator[RenderableType]:
        """Yield the title, each group of batches, and the summary, ready to print."""
        report, text = self._report, self._canvas.text
        yield text(words.title(report), style="bold")
        yield text(words.setting(report), style="dim")
        if report.partial:
            yield text(words.interruption(report), style="bold yellow")
        if report.tokens is not None:
            yield from token_tables(report.tokens, self._canvas, verbose=verbose)
        for group in report.listed(verbose=verbose) if report.tokens is None else ():
            yield Text()
            yield text(words.heading(report, group), style="bold")
            yield from self.group(group)
        yield Text()
        yield self._summary()

    def _summary(self) -> Table:
        report, text = self._report, self._canvas.text
        table = grid("keep", "fold")
        for name, number, meaning in words.facts(report):
            joint = " " if number and not meaning.startswith(":") else ""
            table.add_row(Text(name), Text.assemble(text(number, style="bold"), joint, text(meaning)))
        for note in words.notes(report):
            table.add_row(Text("Note", "bold"), text(note))
        for warning in words.warnings(report):
            table.add_row(Text("Warning", "bold yellow"), text(warning))
        if tip := words.tip(report):
            table.add_row(Text("Tip", "bold green"), text(tip))
        return table


def _stacked(cells: Cells) -> Text:
    rows = cells.rows if cells.rows == "idle" else f"{cells.rows} rows{' each' if cells.count > 1 else ''}"
    body = [rows, *cells.on_lines()]
    return Text("\n".join([cells.label, *(f"  {line}" for line in body)]))

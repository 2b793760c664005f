"""The table for people: a bar for each device, what it received and returned, and the sums in words."""

from collections.abc import Iterator

from rich.box import SIMPLE_HEAD, Box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dpdemo.render import words
from dpdemo.render.bars import bar
from dpdemo.render.glyphs import fit, is_unicode
from dpdemo.render.layout import GAP, Cells, choose
from dpdemo.render.lines import Line, Splits, group_lines
from dpdemo.render.plain import listed
from dpdemo.render.shapes import bracketed
from dpdemo.render.trimming import Trimmed
from dpdemo.report import BatchGroup, Shapes, SplitReport

_ASCII_HEAD = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


def print_report(report: SplitReport, console: Console, *, verbose: bool) -> None:
    """Print the whole picture, a group of batches at a time."""
    for part in Picture(report, console).parts(verbose=verbose):
        console.print(Trimmed(part))


class GroupPicture:
    """The tables of groups of batches, for a console's width and characters; all of them line up."""

    def __init__(self, report: Splits, console: Console) -> None:
        self._report = report
        self._encoding = console.encoding
        self._width = console.width
        self._layout = choose(self._all_cells(), self._heading(console.width), console.width)

    def group(self, group: BatchGroup) -> Iterator[RenderableType]:
        """Yield what reached each device in a group of batches, and what was seen outside."""
        yield self._table(group)
        yield self._outside(group)

    def _text(self, text: str, style: str = "") -> Text:
        return Text(fit(text, self._encoding), style)

    def _heading(self, width: int) -> str:
        whole = fit(f"{words.inside(self._report)}: input → output", self._encoding)
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
            label=fit(line.label, self._encoding),
            rows="idle" if line.is_idle else str(line.rows),
            input=() if line.is_idle else self._shapes(line.input),
            output=self._shapes(line.output),
            arrow=fit("→", self._encoding),
            count=line.count,
        )

    def _shapes(self, shapes: Shapes) -> tuple[str, ...]:
        return tuple(fit(text, self._encoding) for text in bracketed(shapes))

    def _table(self, group: BatchGroup) -> Table:
        table = self._empty_table()
        for line in group_lines(self._report, group):
            cells = self._cells(line)
            style = "dim" if line.is_idle else ""
            if self._layout.stacked:
                table.add_row(_stacked(cells), style=style)
            else:
                table.add_row(*self._columns(cells, line, group), style=style)
        return table

    def _empty_table(self) -> Table:
        layout = self._layout
        box = SIMPLE_HEAD if is_unicode(self._encoding) else _ASCII_HEAD
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
            table.add_column(Text(), width=layout.bar)
        return table

    def _columns(self, cells: Cells, line: Line, group: BatchGroup) -> Iterator[RenderableType]:
        layout = self._layout
        yield Text(cells.label)
        yield Text(cells.rows)
        yield Text(cells.on_one_line() if layout.one_line else "\n".join(cells.on_lines()))
        if layout.bar:
            ascii_only = not is_unicode(self._encoding)
            yield bar(line.rows, group.largest, line.position, layout.bar, ascii_only=ascii_only)

    def _outside(self, group: BatchGroup) -> Table:
        outside = group.outside
        before = f"{', '.join(self._shapes(outside.input))} on {outside.input_device}"
        after = (
            f"{', '.join(self._shapes(outside.output))} on {outside.device}{words.outside_of(self._report)}"
        )
        arrow = fit("→", self._encoding)
        label = max(self._layout.label if not self._layout.stacked else 0, len("Outside"))
        room = self._width - label - GAP
        joint = " " if len(before) + len(after) + len(arrow) + 2 <= room else "\n"
        grid = _grid(label)
        grid.add_row(Text("Outside", "bold"), Text(f"{before}{joint}{arrow} {after}"))
        return grid


class Picture(GroupPicture):
    """The parts of a report's picture."""

    _report: SplitReport

    def parts(self, *, verbose: bool) -> Iterator[RenderableType]:
        """Yield the title, each group of batches, and the summary, ready to print."""
        report = self._report
        yield self._text(words.title(report), "bold")
        yield self._text(words.setting(report), "dim")
        if report.partial:
            yield self._text(words.interruption(report), "bold yellow")
        for group in listed(report, verbose=verbose):
            yield Text()
            yield self._text(words.heading(report, group), "bold")
            yield from self.group(group)
        yield Text()
        yield self._summary()

    def _summary(self) -> Table:
        report = self._report
        grid = _grid()
        for name, number, meaning in words.facts(report):
            grid.add_row(Text(name), Text.assemble(self._text(number, "bold"), " ", self._text(meaning)))
        for warning in words.warnings(report):
            grid.add_row(Text("Warning", "bold yellow"), self._text(warning))
        if tip := words.tip(report):
            grid.add_row(Text("Tip", "bold green"), self._text(tip))
        return grid


def _stacked(cells: Cells) -> Text:
    rows = cells.rows if cells.rows == "idle" else f"{cells.rows} rows{' each' if cells.count > 1 else ''}"
    body = [rows, *cells.on_lines()]
    return Text("\n".join([cells.label, *(f"  {line}" for line in body)]))


def _grid(first_width: int | None = None) -> Table:
    grid = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
    grid.add_column(width=first_width, no_wrap=True)
    grid.add_column(overflow="fold")
    return grid

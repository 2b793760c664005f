"""The table for people: a row a part, a column a GPU, a bar a GPU below, and the answer in a sentence.

The letters before the rows are those of the bars, so the table is their legend. Columns that do not fit into
the width go on below.
"""

from collections.abc import Iterator

from rich.box import Box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dpdemo.memoryreport import PARTS, Fit, MemoryReport
from dpdemo.render.glyphs import fit, is_unicode
from dpdemo.render.layout import GAP, SHORTEST_BAR
from dpdemo.render.memory import words
from dpdemo.render.memory.bars import bar, capacity_mark, letter
from dpdemo.render.memory.lines import GpuLine, gpu_lines
from dpdemo.render.sizes import size
from dpdemo.render.trimming import Trimmed

# as SIMPLE_HEAD, and with a line between sections: over the peak, as over a sum
_RULED = Box("    \n    \n ── \n    \n ── \n    \n    \n    \n")
_ASCII_RULED = Box("    \n    \n -- \n    \n -- \n    \n    \n    \n", ascii=True)
_LABEL = len("P ") + max(map(len, PARTS))


def print_memory(report: MemoryReport, console: Console) -> None:
    """Print the whole picture."""
    for part in Picture(report, console).parts():
        console.print(Trimmed(part))


class Picture:
    """The parts of a memory report's picture, for a console's width and characters."""

    def __init__(self, report: MemoryReport, console: Console) -> None:
        self._report = report
        self._encoding = console.encoding
        self._ascii_only = not is_unicode(console.encoding)
        self._width = console.width
        self._lines = gpu_lines(report)

    def parts(self) -> Iterator[RenderableType]:
        """Yield title and setting, the table, the bars and the answer, ready to print."""
        report = self._report
        yield self._text(words.title(report), "bold")
        yield self._text(words.setting(report), "dim")
        for lines in self._bands():
            yield Text()
            yield self._table(lines)
        yield Text()
        yield self._bars()
        yield Text()
        yield self._text(words.verdict(report), self._verdict_style())
        if report.fit is not None and report.fit.remedies:
            yield Text()
            yield self._text(words.remedies_heading(report.fit), "bold")
            yield self._remedies(report.fit)

    def _text(self, text: str, style: str = "") -> Text:
        return Text(fit(text, self._encoding), style)

    def _verdict_style(self) -> str:
        if not self._report.fits:
            return "bold red"
        if words.falls_short(self._report):
            return "bold yellow"
        return "bold" if self._report.fullest.capacity_bytes is None else "bold green"

    def _bands(self) -> Iterator[list[GpuLine]]:
        """Yield the GPUs that stand side by side, as many as fit; at least one."""
        band: list[GpuLine] = []
        left = self._width - _LABEL
        for line in self._lines:
            width = GAP + max(map(cell_len, (words.heading(line), *words.column(self._report, line))))
            if band and width > left:
                yield band
                band, left = [], self._width - _LABEL
            band.append(line)
            left -= width
        yield band

    def _table(self, lines: list[GpuLine]) -> Table:
        table = self._empty_table(lines)
        names = words.row_names(self._report)
        columns = [words.column(self._report, line) for line in lines]
        for number, (name, *cells) in enumerate(zip(names, *columns, strict=True)):
            styles = self._styles(name, lines)
            cell_texts = (self._text(cell, style) for cell, style in zip(cells, styles, strict=True))
            table.add_row(self._label(name), *cell_texts)
            if names[number + 1 : number + 2] == ["peak"]:
                table.add_section()
        return table

    def _empty_table(self, lines: list[GpuLine]) -> Table:
        table = Table(
            box=_ASCII_RULED if self._ascii_only else _RULED,
            show_edge=False,
            pad_edge=False,
            padding=(0, GAP - 1, 0, 0),
            header_style="dim",
            border_style="dim",
        )
        table.add_column(width=_LABEL, overflow="fold")
        for line in lines:
            table.add_column(self._text(words.heading(line)), justify="right", overflow="fold")
        return table

    def _label(self, name: str) -> Text:
        """Write a row's name behind the sign that stands for it in the bars."""
        sign = Text(" ")
        if name == "capacity":
            sign = capacity_mark(ascii_only=self._ascii_only)
        elif name in PARTS:
            sign = letter(PARTS.index(name))
        return Text.assemble(sign, (f" {name}", "bold" if name == "peak" else ""))

    def _styles(self, name: str, lines: list[GpuLine]) -> list[str]:
        if name == "room":
            return ["green" if line.gpu.fits else "bold red" for line in lines]
        return ["bold" if name == "peak" else ""] * len(lines)

    def _bars(self) -> Table:
        labels = [fit(line.label, self._encoding) for line in self._lines]
        ends = [words.share(line.gpu) or size(line.gpu.peak_bytes) for line in self._lines]
        width = self._width - max(map(len, labels)) - max(map(len, ends)) - 2 * GAP
        grid = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
        grid.add_column(overflow="fold")
        if width >= SHORTEST_BAR:
            grid.add_column(width=width, no_wrap=True)
        grid.add_column(justify="right", no_wrap=True)
        scale = max(max(line.gpu.peak_bytes, line.gpu.capacity_bytes or 0) for line in self._lines)
        for name, line, end in zip(labels, self._lines, ends, strict=True):
            style = "" if line.gpu.fits else "bold red"
            drawn = (
                [bar(line.gpu, max(scale, 1), width, ascii_only=self._ascii_only)]
                if width >= SHORTEST_BAR
                else []
            )
            grid.add_row(Text(name), *drawn, Text(end, style))
        return grid

    def _remedies(self, found: Fit) -> Table:
        grid = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
        grid.add_column(overflow="fold")
        grid.add_column(overflow="fold")
        grid.add_column(overflow="fold")
        for remedy in words.remedies(found):
            gain = self._text(words.gain(remedy), "bold green" if remedy.gain_bytes > 0 else "dim")
            then, how = self._text(words.fullest_then(remedy)), self._text(remedy.how, "dim")
            grid.add_row(Text(f"  {remedy.name}"), gain, Text.assemble(how, "\n", then))
        return grid

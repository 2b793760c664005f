"""The table for people: a row per part, a column per GPU, a bar per GPU below, and the answer in a sentence.

The letters before the rows are those of the bars, so the table is their legend. Columns that do not fit into
the width go on below.
"""

from collections.abc import Iterator

from rich.box import Box
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dpdemo.bytesize import size
from dpdemo.render.console import GAP, Canvas, grid
from dpdemo.render.layout import SHORTEST_BAR
from dpdemo.render.memory import words
from dpdemo.render.memory.bars import bar, capacity_mark, letter
from dpdemo.render.memory.chart import over_time
from dpdemo.render.memory.lines import GpuLine, gpu_lines
from dpdemo.reports.memory import PARTS, Fit, MemoryReport

# as SIMPLE_HEAD, and with a line between sections: over the peak, as over a sum
_RULED = Box("    \n    \n ── \n    \n ── \n    \n    \n    \n")
_ASCII_RULED = Box("    \n    \n -- \n    \n -- \n    \n    \n    \n", ascii=True)
_LABEL = len("P ") + max(map(len, PARTS))


class Picture:
    """The parts of a memory report's picture, for a canvas."""

    def __init__(self, report: MemoryReport, canvas: Canvas) -> None:
        self._report = report
        self._canvas = canvas
        self._ascii_only = canvas.is_ascii
        self._width = canvas.width
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
        for note in words.notes(report):
            yield self._text(note, "dim")
        yield from self._over_time()
        if report.fit is not None and report.fit.remedies:
            yield Text()
            yield self._text(words.remedies_heading(report.fit), "bold")
            yield self._remedies(report.fit)

    def _over_time(self) -> Iterator[RenderableType]:
        for line in self._lines:
            if line.gpu.moments:
                yield Text()
                yield self._text(f"{words.heading(line)} over the step", "bold")
                yield from over_time(line.gpu, self._width, ascii_only=self._ascii_only)

    def _text(self, text: str, style: str = "") -> Text:
        return self._canvas.text(text, style=style)

    def _verdict_style(self) -> str:
        if not self._report.fits:
            return "bold red"
        if words.falls_short(self._report) or self._report.answer == "tight":
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
            colours = {"fits": "green", "tight": "bold yellow", "does not fit": "bold red"}
            return [colours[line.gpu.answer] for line in lines]
        return ["bold" if name == "peak" else ""] * len(lines)

    def _bars(self) -> Table:
        labels = [self._canvas.fit(line.label) for line in self._lines]
        ends = [words.share(line.gpu) or size(line.gpu.peak_bytes) for line in self._lines]
        width = self._width - max(map(len, labels)) - max(map(len, ends)) - 2 * GAP
        rows = grid("fold", *([width] if width >= SHORTEST_BAR else []), "right")
        scale = max(max(line.gpu.peak_bytes, line.gpu.capacity_bytes or 0) for line in self._lines)
        for name, line, end in zip(labels, self._lines, ends, strict=True):
            style = "" if line.gpu.fits else "bold red"
            drawn = (
                [bar(line.gpu, max(scale, 1), width, ascii_only=self._ascii_only)]
                if width >= SHORTEST_BAR
                else []
            )
            rows.add_row(Text(name), *drawn, Text(end, style))
        return rows

    def _remedies(self, found: Fit) -> Table:
        rows = grid("fold", "fold", "fold")
        for remedy in found.remedies:
            gain = self._text(words.gain(remedy), "bold green")
            then, how = self._text(words.fullest_then(remedy)), self._text(remedy.how, "dim")
            rows.add_row(Text(f"  {remedy.name}"), gain, Text.assemble(how, "\n", then))
        return rows

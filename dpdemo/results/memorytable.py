"""The picture of memory: a row per part, a column per GPU, a bar per GPU below, and the answer in a sentence.

The letters before the rows are those of the bars, so the table is their legend. Columns that do not fit into
the width go on below.
"""

from collections.abc import Iterator

from dpdemo.results import memorywords as words
from dpdemo.results.memorybars import bar, capacity_mark, letter
from dpdemo.results.memorychart import over_time
from dpdemo.results.memorydata import PARTS, Fit, MemoryData
from dpdemo.results.memorylines import GpuLine, gpu_lines
from dpdemo.results.table import (
    GAP,
    Block,
    Canvas,
    Column,
    Line,
    Table,
    joined,
    right,
    styled,
    text_width,
)
from dpdemo.sizes import size

_LABEL = len("P ") + max(map(len, PARTS))


class Picture:
    """The parts of a memory report's picture, for a canvas."""

    def __init__(self, report: MemoryData, canvas: Canvas) -> None:
        self._report = report
        self._canvas = canvas
        self._width = canvas.width
        self._lines = gpu_lines(report)

    def parts(self) -> Iterator[Block]:
        """Yield title and setting, the table, the bars and the answer, ready to print."""
        report = self._report
        yield self._text(words.title(report), "bold")
        yield self._text(words.setting(report), "dim")
        for lines in self._bands():
            yield ()
            yield self._table(lines)
        if self._canvas.draws_bars:
            yield ()
            yield self._bars()
        yield ()
        yield self._text(words.verdict(report), self._verdict_style())
        for note in words.notes(report):
            yield self._text(note, "dim")
        yield from self._over_time()
        if report.fit is not None and report.fit.remedies:
            yield ()
            yield self._text(words.remedies_heading(report.fit), "bold")
            yield self._remedies(report.fit)

    def _over_time(self) -> Iterator[Block]:
        for line in self._lines:
            if line.gpu.moments and self._canvas.draws_bars:
                yield ()
                yield self._text(f"{words.heading(line)} over the step", "bold")
                yield from over_time(line.gpu, self._canvas)

    def _text(self, text: str, style: str = "") -> Line:
        return self._canvas.text(text, style=style)

    def _verdict_style(self) -> str:
        if not self._report.fits:
            return "bold red"
        if words.falls_short(self._report) or self._report.answer == "tight":
            return "bold yellow"
        return "bold" if self._report.fullest.capacity_bytes is None else "bold green"

    def _bands(self) -> Iterator[list[GpuLine]]:
        """Yield the GPUs of one table, as many as fit; at least one."""
        band: list[GpuLine] = []
        left = self._width - _LABEL
        for line in self._lines:
            width = GAP + max(map(text_width, (words.heading(line), *words.column(self._report, line))))
            if band and width > left:
                yield band
                band, left = [], self._width - _LABEL
            band.append(line)
            left -= width
        yield band

    def _table(self, lines: list[GpuLine]) -> Table:
        names = words.row_names(self._report)
        head = ((), *(self._canvas.text(words.heading(line), style="dim") for line in lines))
        rules = frozenset({names.index("peak")})
        table = Table((_LABEL, *right(len(lines))), head=head, has_rule=True, rules=rules)
        columns = [words.column(self._report, line) for line in lines]
        for name, *cells in zip(names, *columns, strict=True):
            styles = self._styles(name, lines)
            texts = (self._text(cell, style) for cell, style in zip(cells, styles, strict=True))
            table.add(self._label(name), *texts)
        return table

    def _label(self, name: str) -> Line:
        """Write a row's name behind its sign in the bars."""
        if not self._canvas.draws_bars:
            return styled(name, "bold" if name == "peak" else "")
        sign = styled(" ")
        if name == "capacity":
            sign = capacity_mark(self._canvas)
        elif name in PARTS:
            sign = letter(PARTS.index(name))
        return sign + styled(f" {name}", "bold" if name == "peak" else "")

    def _styles(self, name: str, lines: list[GpuLine]) -> list[str]:
        if name == "room":
            colours = {"fits": "green", "tight": "bold yellow", "does not fit": "bold red"}
            return [colours[line.gpu.answer] for line in lines]
        return ["bold" if name == "peak" else ""] * len(lines)

    def _bars(self) -> Table:
        labels = [self._canvas.fit(line.label) for line in self._lines]
        ends = [words.share(line.gpu) or size(line.gpu.peak_bytes) for line in self._lines]
        width = self._canvas.bar_width(self._width - max(map(len, labels)) - max(map(len, ends)) - 2 * GAP)
        bars: list[Column] = [width] if width else []
        rows = Table(("fold", *bars, "right"))
        scale = max(max(line.gpu.peak_bytes, line.gpu.capacity_bytes or 0) for line in self._lines)
        for name, line, end in zip(labels, self._lines, ends, strict=True):
            style = "" if line.gpu.fits else "bold red"
            drawn = [bar(line.gpu, max(scale, 1), width, self._canvas)] if bars else []
            rows.add(styled(name), *drawn, styled(end, style))
        return rows

    def _remedies(self, found: Fit) -> Table:
        rows = Table(("fold", "fold", "fold"))
        for remedy in found.remedies:
            gain = self._text(words.gain(remedy), "bold green")
            then, how = self._text(words.fullest_then(remedy)), self._text(remedy.how, "dim")
            rows.add(styled(f"  {remedy.name}"), gain, joined([how, then]))
        return rows

"""The heat map of a sweep: numbers of GPUs downwards, batch sizes to the right.

Up to 24 numbers of GPUs have a row each, whose signs say all without colour. More are drawn, where there is
colour, as half blocks: the upper half of a character is one row, the lower half the next.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style

from dpdemo.render.console import Canvas
from dpdemo.render.sweep import figures
from dpdemo.render.sweep.blocks import Block, blocks, cut
from dpdemo.render.sweep.signs import LEGENDS, colour, in_colour, sign
from dpdemo.render.sweep.words import TITLES, basis, best, counts, grid_of, span
from dpdemo.reports.sweep import SweepReport

MOST_ROWS = 24
_LEAST_COLUMNS = 8
_HALF = "▀"
_LARGEST = "  largest"


def parts(report: SweepReport, canvas: Canvas) -> Iterator[RenderableType]:
    """Yield the picture: what was swept, the map, what its signs mean, the counts, and the best cell."""
    yield canvas.text(TITLES[report.measure], style="bold")
    yield canvas.text(grid_of(report))
    yield canvas.text("")
    yield _HeatMap(report, canvas)
    if said := list(counts(report)):
        yield canvas.text(*said)
    yield canvas.text("", best(report), style="bold")
    if report.basis is not None:
        yield canvas.text("", *basis(report))


@dataclass(frozen=True)
class _Drawn:
    """A map that is ready: what stands over it, its lines with their labels, what stands below."""

    head: str
    labels: Sequence[str]
    lines: Iterable[list[Segment]]
    ticks: str
    legend: Sequence[str]


class _HeatMap:
    """The map itself, which looks at the console: half blocks say nothing without colour."""

    def __init__(self, report: SweepReport, canvas: Canvas) -> None:
        self._report = report
        self._canvas = canvas

    def __rich_console__(self, console: Console, _: ConsoleOptions) -> RenderResult:
        has_colour = console.color_system is not None and not console.no_color
        drawn = self._drawn(has_colour=has_colour and not self._canvas.is_ascii)
        width = max(len("GPUs"), *map(len, drawn.labels))
        yield from _joined("GPUs", [Segment(drawn.head)], width)
        for label, line in zip(drawn.labels, drawn.lines, strict=True):
            yield from _joined(label, line, width)
        if drawn.ticks:
            yield from _joined("", [Segment(drawn.ticks)], width)
        yield Segment.line()
        if any(drawn.legend):
            yield from console.render(self._canvas.text(*drawn.legend))

    def _drawn(self, *, has_colour: bool) -> _Drawn:
        report, num_lines = self._report, len(self._report.lines)
        halves = num_lines > MOST_ROWS and has_colour
        rows = cut(num_lines, 2 * MOST_ROWS if halves else MOST_ROWS)
        labels = [self._label(row) for row in rows]
        largest = [] if halves else self._largest(rows)
        room = (
            self._canvas.width - max(len("GPUs"), *map(len, labels)) - 1 - max(map(len, largest), default=0)
        )
        columns = cut(len(report.batch_sizes), max(_LEAST_COLUMNS, room))
        found = list(blocks(report, rows, columns))
        texts = figures.written(found, report)
        if texts is not None:
            width = figures.column_width(texts, report)
            if width * len(columns) <= room:
                lines = figures.lines(found, texts, width, report.measure)
                head = f"{figures.head(report, width)}{_LARGEST if largest else ''}"
                return _Drawn(head, labels, _ended(lines, largest), "", [figures.legend(report)])
        signs = list(self._halves(found) if halves else _ended(self._whole(found), largest))
        head = self._canvas.fit(_said(columns, rows))
        if largest:
            head = f"{head:<{len(columns)}}{_LARGEST}"
        legend = in_colour(report.measure) if halves else LEGENDS[report.measure]
        return _Drawn(
            head, labels[:: 2 if halves else 1], signs, _ticks(report.batch_sizes, columns), [legend]
        )

    def _largest(self, rows: Sequence[slice]) -> list[str]:
        """Write, where it is asked what fits, the largest batch of each line that does."""
        if self._report.measure != "fits":
            return []
        found = [self._report.largest(self._report.lines[row][0]) for row in rows]
        return [f"{'none' if size is None else size:>{len(_LARGEST)}}" for size in found]

    def _label(self, row: slice) -> str:
        lines = self._report.lines[row]
        return self._canvas.fit(span((lines[0].gpus, lines[-1].gpus)))

    def _whole(self, found: Sequence[Sequence[Block]]) -> Iterator[list[Segment]]:
        measure = self._report.measure
        for row in found:
            yield [Segment(sign(block, measure), self._style(block)) for block in row]

    def _style(self, block: Block) -> Style:
        behind = colour(block, self._report.measure)
        return Style(color=behind.ink, bgcolor=behind.css)

    def _halves(self, found: Sequence[Sequence[Block]]) -> Iterator[list[Segment]]:
        measure = self._report.measure
        for upper, lower in zip_longest(found[::2], found[1::2]):
            below = [None] * len(upper) if lower is None else [colour(each, measure).css for each in lower]
            yield [
                Segment(_HALF, Style(color=colour(above, measure).css, bgcolor=under))
                for above, under in zip(upper, below, strict=True)
            ]


def _ended(lines: Iterable[list[Segment]], ends: Sequence[str]) -> Iterator[list[Segment]]:
    """Put a text behind each line, if there are any."""
    for line, end in zip_longest(lines, ends, fillvalue=""):
        yield [*line, Segment(str(end))]


def _joined(label: str, line: Sequence[Segment], width: int) -> Iterator[Segment]:
    yield Segment(f"{label:>{width}} ")
    yield from Segment.simplify(line)
    yield Segment.line()


def _said(columns: Sequence[slice], rows: Sequence[slice]) -> str:
    across, down = (parts[0].stop - parts[0].start for parts in (columns, rows))
    if across * down == 1:
        return ""
    over = "" if down == 1 else f" × {down} numbers of GPUs"
    return f"a sign is the mean of {across} batch sizes{over}"


def _ticks(sizes: Sequence[int], columns: Sequence[slice]) -> str:
    """Write the first batch size of a column below it, wherever there is room for it."""
    line = ""
    for place, column in enumerate(columns):
        text = str(sizes[column.start])
        starts_here = place == 0 or place >= len(line) + 4
        if starts_here and place + len(text) <= max(len(columns), len(text)):
            line = line.ljust(place) + text
    return line

"""Drawing a SweepReport: a heat map with numbers of GPUs downwards and batch sizes to the right.

A sign is one cell, or the mean of neighbouring batch sizes, and can be read without colour. The colours are
cividis, for readers with and without colour vision (Nuñez, Anderton and Renslow 2018); the two marks have
hues that it lacks (Okabe and Ito 2008).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dpdemo.render.files import Drawing
from dpdemo.render.markdown import escaped, table
from dpdemo.reports.sweep import IDEAL, Line, Measure, SweepReport

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dpdemo.render.console import Canvas

_LEAST_COLUMNS = 8
_MARKDOWN_COLUMNS = 16
_CIVIDIS = (
    *((0, 32, 77), (0, 51, 111), (57, 72, 107), (87, 92, 109), (112, 113, 115)),
    *((138, 135, 121), (166, 157, 117), (196, 181, 108), (228, 207, 91), (255, 234, 70)),
)
_MARKS = {"x": (213, 94, 0), "o": (230, 159, 200)}
_TITLES: dict[Measure, str] = {
    "balance": "Balance: share of GPU row slots in use while the largest chunk runs",
    "weight": "Weight: how much more a sample of the shortest chunk counts",
    "idle": "Idle: number of GPUs without a chunk",
}
_LEGENDS: dict[Measure, str] = {
    "balance": "# all equal, 9 at least 0.9 ... 0 under 0.1; x a GPU idle; o a sample alone",
    "weight": "# all equal, 1 under 2 times ... 9 nine times or more; x a GPU idle; o a sample alone",
    "idle": "# none, 1-9 that many, + ten or more",
}
_IDEAL: dict[Measure, str] = {
    "balance": "all GPUs equal",
    "weight": "all chunks equal",
    "idle": "no GPU idle",
}


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring batch sizes drawn as one: their mean, and the marks that at least half of them have."""

    mean: float
    gpus: int
    is_idle: bool
    is_lone: bool

    def sign(self, measure: Measure) -> str:
        """Return the sign of the block."""
        if measure == "idle":
            return "#" if self.mean == 0 else "+" if self.mean >= 10 else str(max(1, round(self.mean)))
        if self.is_idle or self.is_lone:
            return "x" if self.is_idle else "o"
        if self.mean == IDEAL[measure]:
            return "#"
        return str(min(int(10 * self.mean if measure == "balance" else self.mean), 9))

    def colour(self, measure: Measure) -> tuple[int, int, int]:
        """Return the colour of the block: yellow is good, dark blue is not; a mark is darker if worse."""
        good = {"balance": self.mean**2, "idle": 1 - self.mean / self.gpus}.get(measure, 1 / (self.mean or 1))
        mark = _MARKS.get(self.sign(measure))
        if mark is None:
            return _CIVIDIS[min(int(good * len(_CIVIDIS)), len(_CIVIDIS) - 1)]
        red, green, blue = (int(part * (0.4 + 0.6 * good)) for part in mark)
        return red, green, blue


def drawing(report: SweepReport) -> Drawing:
    """Make the drawing of a sweep."""
    return Drawing.of(report, "dpdemo sweep", partial(_parts, report), markdown=partial(_markdown, report))


def cut(count: int, room: int) -> list[slice]:
    """Cut `count` places into at most `room` slices, all equal but the last."""
    width = -(-count // room)
    return [slice(start, min(start + width, count)) for start in range(0, count, width)]


def _parts(report: SweepReport, canvas: "Canvas") -> "Iterator[RenderableType]":
    yield canvas.text(_TITLES[report.measure], style="bold")
    yield canvas.text(_grid(report), "")
    right = 2 + max(map(len, ["even", *map(_even, report.lines)]))
    columns = cut(len(report.batch_sizes), max(_LEAST_COLUMNS, canvas.width - len("GPUs ") - right))
    yield canvas.text(f"GPUs {_merged(columns[0]):<{len(columns)}}{'even':>{right}}")
    for line in report.lines:
        drawn = canvas.text(f"{line.gpus:>4} ")
        for column in columns:
            block = _block(line, column)
            drawn.append(block.sign(report.measure), _style(block.colour(report.measure)))
        yield drawn.append(f"{_even(line):>{right}}")
    yield canvas.text(f"     {_ticks(report.batch_sizes, columns)}", "", _LEGENDS[report.measure])
    yield canvas.text(*_counts(report), "", _advice(report))


def _markdown(report: SweepReport) -> Iterator[str]:
    yield f"### {escaped(_TITLES[report.measure])}\n\n{escaped(_grid(report))}\n\n"
    columns = cut(len(report.batch_sizes), _MARKDOWN_COLUMNS)
    sizes = [report.batch_sizes[column] for column in columns]
    head = ["GPUs", *(_span(each[0], each[-1]) for each in sizes), "even"]
    cells = (
        (str(line.gpus), *(_cell(_block(line, column), report.measure) for column in columns), _even(line))
        for line in report.lines
    )
    yield from table(head, cells, right=range(len(head)))
    yield f"\n{escaped(_LEGENDS[report.measure])}\n\n"
    yield from (f"- {escaped(line)}\n" for line in _counts(report))
    yield f"\n{escaped(_advice(report))}\n"


def _cell(block: Block, measure: Measure) -> str:
    sign = block.sign(measure)
    return f"{block.mean:.3g}{f' {sign}' if sign in _MARKS else ''}"


def _block(line: Line, column: slice) -> Block:
    values = line.values[column]
    return Block(
        mean=sum(values) / len(values),
        gpus=line.gpus,
        is_idle=2 * sum(line.has_idle[column]) >= len(values),
        is_lone=2 * sum(line.has_lone[column]) >= len(values),
    )


def _style(colour: tuple[int, int, int]) -> str:
    """Write a sign's background, and black or white for the sign, whichever can be read on it."""
    red, green, blue = colour
    is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 120
    return f"{'#000000' if is_light else '#ffffff'} on #{red:02x}{green:02x}{blue:02x}"


def _even(line: Line) -> str:
    return "none" if line.nearest_even is None else str(line.nearest_even)


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


def _grid(report: SweepReport) -> str:
    sizes = _span(report.batch_sizes[0], report.batch_sizes[-1])
    gpus = _span(report.lines[0].gpus, report.lines[-1].gpus)
    return f"batch sizes {sizes} over {gpus} GPUs, {_cells(report.totals.cells)}"


def _cells(number: int) -> str:
    return f"{number:,} cell{'s' * (number != 1)}"


def _counts(report: SweepReport) -> Iterable[str]:
    totals = report.totals
    counts = [(totals.ideal, _IDEAL[report.measure]), (totals.lone, "a sample alone on its GPU")]
    if report.measure != "idle":
        counts.insert(1, (totals.idle, "a GPU idle"))
    return [f"{number:,} of {_cells(totals.cells)}: {text}" for number, text in counts]


def _advice(report: SweepReport) -> str:
    return (
        f"even: the batch size nearest {report.near} that the GPUs share equally, two or more rows each. "
        "How many GPUs pay off depends on the model: dpdemo speedup."
    )


def _merged(column: slice) -> str:
    """Write how many batch sizes a sign is the mean of; nothing where it is one."""
    width = column.stop - column.start
    return "" if width == 1 else f"a sign is the mean of {width} batch sizes"


def _ticks(sizes: Sequence[int], columns: Sequence[slice]) -> str:
    """Write the first batch size of a column below it, wherever it has room."""
    line = ""
    for place, column in enumerate(columns):
        text = str(sizes[column.start])
        if (place == 0 or place >= len(line) + 4) and place + len(text) <= max(len(columns), len(text)):
            line = line.ljust(place) + text
    return line

"""The result of `dpdemo sweep`: a figure for each batch size and number of GPUs, drawn as a heat map.

GPUs go downwards and batch sizes to the right. A sign is one cell, or the mean of neighbouring batch sizes,
and can be read without colour. The colours are cividis, for readers with and without colour vision (Nuñez,
Anderton and Renslow 2018); the two marks have hues that it lacks (Okabe and Ito 2008).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from dpdemo.results.formats import Row, in_json
from dpdemo.results.report import TableReport, rounded
from dpdemo.results.table import Block, Canvas, Uncut, stacked, styled

Measure = Literal["balance", "weight", "idle"]
"""Balance is BatchGroup's `utilization`, weight its `sample_weight`, idle the number of its idle GPUs."""

IDEAL: dict[Measure, float] = {"balance": 1.0, "weight": 1.0, "idle": 0}
"""The figure of a batch that all GPUs share equally."""

_LEAST_COLUMNS = 8
_MARKDOWN_WIDTH = 80
_CIVIDIS = (
    *((0, 32, 77), (0, 51, 111), (57, 72, 107), (87, 92, 109), (112, 113, 115)),
    *((138, 135, 121), (166, 157, 117), (196, 181, 108), (228, 207, 91), (255, 234, 70)),
)
_MARKS = {"x": (213, 94, 0), "o": (230, 159, 200)}
_HEADINGS = ("a sign is the mean of {} batch sizes", "mean of {} sizes")
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
class GpuLine:
    """All batch sizes over one number of GPUs.

    `nearest_even` is the batch size nearest to the report's `near` that all GPUs share equally, with two or
    more rows each; None if the axis has no such batch size. `has_lone` marks a chunk of one row.
    """

    gpus: int
    nearest_even: int | None
    values: tuple[float, ...] = field(metadata=in_json(form=lambda values: list(map(rounded, values))))
    has_idle: tuple[bool, ...]
    has_lone: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of cells that are ideal, leave a GPU idle, and have a lone sample on a GPU."""

    cells: int
    ideal: int
    idle: int
    lone: int


@dataclass(frozen=True, slots=True)
class SweepReport(TableReport):
    """A figure of a full batch, for each batch size over each number of GPUs."""

    SCHEMA: ClassVar[str] = "dpdemo.sweep/1"
    DERIVED: ClassVar[tuple[str, ...]] = ("totals",)
    columns: ClassVar[tuple[str, ...]] = ("batch_size", "gpus", "measure", "value", "has_idle", "has_lone")
    measure: Measure
    near: int
    batch_sizes: tuple[int, ...]
    lines: tuple[GpuLine, ...]

    @property
    def totals(self) -> Counts:
        """Count the cells."""
        return Counts(
            cells=len(self.batch_sizes) * len(self.lines),
            ideal=sum(line.values.count(IDEAL[self.measure]) for line in self.lines),
            idle=sum(line.has_idle.count(True) for line in self.lines),
            lone=sum(line.has_lone.count(True) for line in self.lines),
        )

    def each_row(self) -> Iterator[Row]:
        """Yield a row for each cell, number of GPUs by number of GPUs."""
        for line in self.lines:
            marks = zip(self.batch_sizes, line.values, line.has_idle, line.has_lone, strict=True)
            for size, value, idle, lone in marks:
                yield size, line.gpus, self.measure, rounded(value), idle, lone

    def blocks(self, canvas: Canvas) -> Iterator[Block]:
        """Yield the heat map, its legend and the counts."""
        sizes, gpus = self.batch_sizes, [line.gpus for line in self.lines]
        cells = f"{self.totals.cells:,} cell{'s' * (self.totals.cells != 1)}"
        yield styled(_TITLES[self.measure], "bold")
        yield stacked([f"batch sizes {_span(sizes)} over {_span(gpus)} GPUs, {cells}", ""])
        width = canvas.width if canvas.draws_bars else _MARKDOWN_WIDTH
        right = 2 + max(map(len, ["even", *map(_even, self.lines)]))
        columns = cut(len(sizes), max(_LEAST_COLUMNS, width - len("GPUs ") - right))
        merged = columns[0].stop - columns[0].start
        headings = [form.format(merged) for form in _HEADINGS if merged > 1]
        heading = next((text for text in headings if len(f"GPUs {text}") + right <= width), "")
        yield Uncut(styled(f"GPUs {heading:<{len(columns)}}{'even':>{right}}"))
        for line in self.lines:
            drawn = styled(f"{line.gpus:>4} ")
            for column in columns:
                values = line.values[column]
                square = _Square(
                    mean=sum(values) / len(values),
                    gpus=line.gpus,
                    is_idle=2 * sum(line.has_idle[column]) >= len(values),
                    is_lone=2 * sum(line.has_lone[column]) >= len(values),
                )
                drawn += styled(square.sign(self.measure), _style(square.colour(self.measure)))
            yield Uncut(drawn + styled(f"{_even(line):>{right}}"))
        yield Uncut(styled(f"     {_ticks(sizes, columns)}"))
        yield stacked(["", _LEGENDS[self.measure]])
        totals = self.totals
        counts = [(totals.ideal, _IDEAL[self.measure]), (totals.lone, "a sample alone on its GPU")]
        if self.measure != "idle":
            counts.insert(1, (totals.idle, "a GPU idle"))
        yield stacked(f"{number:,} of {cells}: {text}" for number, text in counts)
        even = f"the batch size nearest {self.near} that the GPUs share equally, two or more rows each"
        yield stacked(["", f"even: {even}."])


@dataclass(frozen=True, slots=True)
class _Square:
    """Neighbouring batch sizes drawn as one: their mean, and the marks that at least half of them have."""

    mean: float
    gpus: int
    is_idle: bool
    is_lone: bool

    def sign(self, measure: Measure) -> str:
        """Return the sign of the square."""
        if measure == "idle":
            return "#" if self.mean == 0 else "+" if self.mean >= 10 else str(max(1, round(self.mean)))
        if self.is_idle or self.is_lone:
            return "x" if self.is_idle else "o"
        if self.mean == IDEAL[measure]:
            return "#"
        return str(min(int(10 * self.mean if measure == "balance" else self.mean), 9))

    def colour(self, measure: Measure) -> tuple[int, int, int]:
        """Return the colour of the square: yellow is good, dark blue is not; a mark is darker if worse."""
        good = {"balance": self.mean**2, "idle": 1 - self.mean / self.gpus}.get(measure, 1 / (self.mean or 1))
        mark = _MARKS.get(self.sign(measure))
        if mark is None:
            return _CIVIDIS[min(int(good * len(_CIVIDIS)), len(_CIVIDIS) - 1)]
        red, green, blue = (int(part * (0.4 + 0.6 * good)) for part in mark)
        return red, green, blue


def cut(count: int, room: int) -> list[slice]:
    """Cut `count` places into at most `room` slices, all equal but the last."""
    width = -(-count // room)
    return [slice(start, min(start + width, count)) for start in range(0, count, width)]


def _style(colour: tuple[int, int, int]) -> str:
    """Write a sign's background, and black or white for the sign, whichever can be read on it."""
    red, green, blue = colour
    is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 120
    return f"{'#000000' if is_light else '#ffffff'} on #{red:02x}{green:02x}{blue:02x}"


def _even(line: GpuLine) -> str:
    return "none" if line.nearest_even is None else str(line.nearest_even)


def _span(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}"


def _ticks(sizes: Sequence[int], columns: Sequence[slice]) -> str:
    """Write the first batch size of a column below it, wherever it has room."""
    line = ""
    for place, column in enumerate(columns):
        text = str(sizes[column.start])
        if (place == 0 or place >= len(line) + 4) and place + len(text) <= max(len(columns), len(text)):
            line = line.ljust(place) + text
    return line

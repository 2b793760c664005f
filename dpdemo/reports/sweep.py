"""What `dpdemo sweep` returns: one figure for each batch size and number of GPUs, kept as plain arrays.

A line holds all batch sizes for one number of GPUs, so that a million cells are some dozens of objects.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Annotated, ClassVar, Literal

from pydantic import PlainSerializer, field_serializer

from dpdemo.reports.base import DIGITS, IfThere, Report, Row, computed

Split = Literal["balance", "weight", "idle"]
"""Balance is BatchGroup's `utilization`, weight its `sample_weight`, idle the number of its idle GPUs."""
Predicted = Literal["memory", "fits", "speedup"]
"""What is predicted for a model."""
Measure = Literal[Split, Predicted, "break-even"]
"""All figures; a speed-up without a measured step is a break-even.

Memory is in bytes: `needed_bytes` of the GPU that needs most; fits is the same with an answer. The speed-up
is that of DataParallel over one GPU with the same batch; the break-even, in milliseconds, is the step of one
GPU with that batch from which it pays.
"""

IDEAL: dict[Measure, float] = {"balance": 1.0, "weight": 1.0, "idle": 0}
"""The figure of a batch that all GPUs share equally."""
ANSWERS: dict[Measure, tuple[str, ...]] = {
    "memory": ("", "fails"),
    "fits": ("fits", "tight", "does not fit", "fails"),
    "speedup": ("pays", "cannot tell", "does not pay", "fails"),
    "break-even": ("pays if longer", "never pays", "fails"),
}
"""What a predicted cell may say, the best first; one that fails has a batch that the model cannot run."""

Axis = Annotated[Sequence[int], PlainSerializer(list, return_type=list[int])]
_Figures = Annotated[
    Sequence[float | None],
    PlainSerializer(
        lambda values: [None if value is None else round(value, DIGITS) for value in values],
        return_type=list[float | None],
    ),
]
_Marks = Annotated[
    bytes, PlainSerializer(lambda marks: [mark == 1 for mark in marks], return_type=list[bool])
]


@dataclass(frozen=True, slots=True)
class Line:
    """All batch sizes over one number of GPUs: the figure, whether a GPU is idle, whether a chunk is one row.

    The figures are an array, of whole numbers where GPUs are counted. The marks are bytes, 1 for yes.
    A predicted line has an answer for each cell; its figure is None where there is none, or where the answer
    follows from those of its neighbours.
    """

    gpus: int
    values: _Figures
    has_idle: _Marks
    has_lone: _Marks
    answers: Annotated[tuple[str, ...] | None, IfThere] = None

    def answer(self, place: int) -> str:
        """Return what the cell at this place says; nothing where nothing is predicted."""
        return "" if self.answers is None else self.answers[place]


@dataclass(frozen=True, slots=True)
class Cell:
    """One batch size over one number of GPUs."""

    batch_size: int
    gpus: int
    value: float | None
    has_idle: bool
    has_lone: bool
    answer: Annotated[str | None, IfThere] = None


@dataclass(frozen=True, slots=True)
class Counts:
    """Of how many cells something is true."""

    cells: int
    ideal: int
    idle: int
    lone: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What the cells of a predicted sweep stand on.

    `num_predicted` steps were predicted, `num_kept` of these in an earlier sweep. `num_between` cells were
    not predicted: they lie between two of their line that have the same answer, and in all predictions of the
    line a larger batch needs more. `failure` is what the first cell that fails said; `assumed`
    names what was given, and what was not.
    """

    model: str
    num_predicted: int
    num_kept: int
    num_between: int = 0
    failure: str = ""
    assumed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SweepReport(Report):
    """A figure of a full batch, for each batch size over each number of GPUs.

    `near` is the batch size near which the best cell is looked for. `basis` is there for what is predicted.
    """

    SCHEMA: ClassVar[str] = "dpdemo.sweep/1"
    columns: ClassVar[tuple[str, ...]] = (
        *("batch_size", "gpus", "measure", "value", "has_idle", "has_lone", "answer"),
    )
    measure: Measure
    near: int
    batch_sizes: Axis
    lines: tuple[Line, ...]
    basis: Annotated[Basis | None, IfThere] = None

    @field_serializer("lines")
    def _each_line(self, _: object) -> Iterable[Line]:
        return iter(self.lines)

    @property
    def num_cells(self) -> int:
        """Count the cells."""
        return len(self.batch_sizes) * len(self.lines)

    @computed
    def totals(self) -> Counts:
        """Count the cells that are ideal, that leave a GPU idle, and that have a chunk of a lone sample.

        What is predicted is ideal where it fits, or pays.
        """
        return Counts(
            cells=self.num_cells,
            ideal=sum(map(self._num_ideal, self.lines)),
            idle=sum(line.has_idle.count(1) for line in self.lines),
            lone=sum(line.has_lone.count(1) for line in self.lines),
        )

    def _num_ideal(self, line: Line) -> int:
        if line.answers is None:
            return line.values.count(IDEAL[self.measure])
        return line.answers.count(ANSWERS[self.measure][0])

    @computed
    def best(self) -> Cell:
        """The best cell near `near`: ideal, no GPU idle, no lone sample, then the nearest, of most GPUs.

        One GPU alone is always balanced, so it counts only where nothing else was asked for. Where no cell
        is ideal, it is the one with the best figure, then the nearest. Of what is predicted it is the best of
        the batch size that is nearest, of fewest GPUs; where all of it fail, of the next nearest.
        """
        if self.basis is not None:
            return self._best_predicted()
        lines = [line for line in self.lines if line.gpus > 1] or list(self.lines)
        lines.sort(key=lambda line: -line.gpus)
        ideal = IDEAL[self.measure]
        for place in self._outwards():
            for line in lines:
                if line.values[place] == ideal and not (line.has_idle[place] or line.has_lone[place]):
                    return self.cell(place, line)
        return self._least_bad(lines)

    def _best_predicted(self) -> Cell:
        known = ANSWERS[self.measure]
        worst = {"memory": 1, "fits": 2, "speedup": 3, "break-even": 1}[self.measure]
        for place in self._outwards():
            line = min(self.lines, key=lambda line: self._rank(line, place))
            if known.index(line.answer(place)) < worst:
                return self.cell(place, line)
        return self.cell(next(self._outwards()), self.lines[0])

    def _rank(self, line: Line, place: int) -> tuple[float, ...]:
        """Order the cells of a batch size: by what they say, by the figure, by GPUs."""
        value = line.values[place] or 0.0
        answer = ANSWERS[self.measure].index(line.answer(place))
        match self.measure:
            case "fits":
                return answer, line.gpus
            case "speedup":
                return -value, line.gpus
            case _:
                return answer, value, line.gpus

    def _least_bad(self, lines: Sequence[Line]) -> Cell:
        pick = max if self.measure == "balance" else min
        value = pick(pick(_known(line.values)) for line in lines)
        return next(
            self.cell(place, line)
            for place in self._outwards()
            for line in lines
            if line.values[place] == value
        )

    def _outwards(self) -> Iterator[int]:
        """Yield the places of all batch sizes, the nearest to `near` first, the larger of two."""
        sizes = self.batch_sizes
        above = bisect_left(sizes, self.near)
        below = above - 1
        while below >= 0 or above < len(sizes):
            if below < 0 or (above < len(sizes) and sizes[above] - self.near <= self.near - sizes[below]):
                yield above
                above += 1
            else:
                yield below
                below -= 1

    def cell(self, place: int, line: Line) -> Cell:
        """Give the cell of the batch size at this place of the axis."""
        value = line.values[place]
        return Cell(
            self.batch_sizes[place],
            line.gpus,
            None if value is None else round(value, DIGITS),
            line.has_idle[place] == 1,
            line.has_lone[place] == 1,
            None if line.answers is None else line.answers[place],
        )

    def largest(self, line: Line) -> int | None:
        """Return the largest batch size of a line that fits, even if tightly; None where none does."""
        runs = (place for place in reversed(range(len(self.batch_sizes))) if line.answer(place) in _RUNS)
        place = next(runs, None)
        return None if place is None else self.batch_sizes[place]

    def each_row(self) -> Iterator[Row]:
        """Yield a row for each cell, number of GPUs by number of GPUs."""
        for line in self.lines:
            answers = repeat("", len(line.values)) if line.answers is None else line.answers
            for size, value, idle, lone, answer in zip(
                self.batch_sizes, line.values, line.has_idle, line.has_lone, answers, strict=True
            ):
                known = None if value is None else round(value, DIGITS)
                yield size, line.gpus, self.measure, known, idle == 1, lone == 1, answer


_RUNS = {"fits", "tight"}


def _known(values: Sequence[float | None]) -> Iterator[float]:
    return (value for value in values if value is not None)

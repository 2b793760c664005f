"""The result of `dpdemo sweep`: one figure for each batch size and number of GPUs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import PlainSerializer

from dpdemo.reports.base import DIGITS, Report, Row, computed

Measure = Literal["balance", "weight", "idle"]
"""Balance is BatchGroup's `utilization`, weight its `sample_weight`, idle the number of its idle GPUs."""

IDEAL: dict[Measure, float] = {"balance": 1.0, "weight": 1.0, "idle": 0}
"""The figure of a batch that all GPUs share equally."""

_Figures = Annotated[
    tuple[float, ...],
    PlainSerializer(lambda values: [round(value, DIGITS) for value in values], return_type=list[float]),
]


@dataclass(frozen=True, slots=True)
class Line:
    """All batch sizes over one number of GPUs.

    `nearest_even` is the batch size nearest to the report's `near` that all GPUs share equally, with two or
    more rows each; None if the axis has no such batch size. `has_lone` marks a chunk of one row.
    """

    gpus: int
    nearest_even: int | None
    values: _Figures
    has_idle: tuple[bool, ...]
    has_lone: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """How many cells are ideal, leave a GPU idle, and have a lone sample on a GPU."""

    cells: int
    ideal: int
    idle: int
    lone: int


@dataclass(frozen=True, slots=True)
class SweepReport(Report):
    """A figure of a full batch, for each batch size over each number of GPUs."""

    SCHEMA: ClassVar[str] = "dpdemo.sweep/1"
    columns: ClassVar[tuple[str, ...]] = ("batch_size", "gpus", "measure", "value", "has_idle", "has_lone")
    measure: Measure
    near: int
    batch_sizes: tuple[int, ...]
    lines: tuple[Line, ...]

    @computed
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
                yield size, line.gpus, self.measure, round(value, DIGITS), idle, lone

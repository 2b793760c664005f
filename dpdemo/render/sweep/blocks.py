"""From cells to the blocks that a picture has room for: a block shows the mean of its cells."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpdemo.reports.sweep import ANSWERS, Line, SweepReport


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring cells drawn as one: their mean, which mark at least half of them have, the worst answer.

    Of what is predicted, `share` says where the mean lies between the least figure of all cells and the most;
    both are 0 where no figure is known.
    """

    mean: float
    gpus: float
    is_idle: bool
    is_lone: bool
    answer: str = ""
    share: float = 0.0


def cut(count: int, room: int) -> list[slice]:
    """Cut so many places into at most `room` parts, all equal but the last."""
    width = -(-count // room)
    return [slice(start, min(start + width, count)) for start in range(0, count, width)]


def blocks(report: SweepReport, rows: Sequence[slice], columns: Sequence[slice]) -> Iterator[list[Block]]:
    """Yield a row of blocks for each slice of lines."""
    known = ANSWERS.get(report.measure, ())
    ends = extremes(report) if known else (0.0, 0.0)
    for row in rows:
        lines = report.lines[row]
        if known:
            yield [_predicted(lines, column, known, ends) for column in columns]
        else:
            yield [_split(lines, column) for column in columns]


def extremes(report: SweepReport) -> tuple[float, float]:
    """Return the least and the most of all figures that are known; two zeros without any."""
    values = [value for line in report.lines for value in line.values if value is not None]
    return min(values, default=0.0), max(values, default=0.0)


def _split(lines: Sequence[Line], column: slice) -> Block:
    num_cells = len(lines) * (column.stop - column.start)
    ends = (column.start, column.stop)
    return Block(
        mean=sum(sum(_known(line, column)) for line in lines) / num_cells,
        gpus=_gpus(lines),
        is_idle=2 * sum(line.has_idle.count(1, *ends) for line in lines) >= num_cells,
        is_lone=2 * sum(line.has_lone.count(1, *ends) for line in lines) >= num_cells,
    )


def _predicted(
    lines: Sequence[Line], column: slice, known: Sequence[str], ends: tuple[float, float]
) -> Block:
    values = [value for line in lines for value in line.values[column] if value is not None]
    answers = {answer for line in lines for answer in (line.answers or ())[column]}
    mean = sum(values) / len(values) if values else 0.0
    least, most = ends
    return Block(
        mean=mean,
        gpus=_gpus(lines),
        is_idle=False,
        is_lone=False,
        answer=max(answers, key=known.index),
        share=(mean - least) / (most - least) if values and most > least else 0.0,
    )


def _known(line: Line, column: slice) -> Sequence[float]:
    """Return the figures of a split, each of which is known."""
    return line.values[column]  # type: ignore[return-value]


def _gpus(lines: Sequence[Line]) -> float:
    return sum(line.gpus for line in lines) / len(lines)

"""The cells of a predicted sweep with their figures, where there is room for them: a sign says less."""

from collections.abc import Iterator, Sequence

from rich.segment import Segment
from rich.style import Style

from dpdemo.render.sweep.blocks import Block, extremes
from dpdemo.render.sweep.signs import colour
from dpdemo.reports.sweep import Measure, SweepReport

_LEGENDS: dict[Measure, str] = {
    "memory": "in {unit}",
    "fits": "",
    "speedup": "times as fast; ? cannot tell, - does not pay",
    "break-even": "in ms; - never pays",
}
_FAILS = "! the model cannot run it"
_UNITS = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20}
_WORDS = {"fits": "fits", "tight": "tight", "does not fit": "no", "fails": "!", "never pays": "-"}
_MARKS = {"cannot tell": "?", "does not pay": "-"}


def written(found: Sequence[Sequence[Block]], report: SweepReport) -> list[list[str]] | None:
    """Write the figure of each block; None where signs have to do: for a split, or cells drawn as one."""
    is_whole = len(found) == len(report.lines) and len(found[0]) == len(report.batch_sizes)
    if report.basis is None or not is_whole:
        return None
    unit = _UNITS[_unit(report)] if report.measure == "memory" else 1
    return [[_text(block, unit) for block in row] for row in found]


def legend(report: SweepReport) -> str:
    """Say in what the figures are, and what signs stand for."""
    fails = _FAILS if report.basis is not None and report.basis.failure else ""
    return "; ".join(filter(None, (_LEGENDS[report.measure].format(unit=_unit(report)), fails)))


def _unit(report: SweepReport) -> str:
    _, most = extremes(report)
    return next((name for name, num_bytes in _UNITS.items() if most >= num_bytes), "MiB")


def _text(block: Block, unit: int) -> str:
    if block.answer in _WORDS:
        return _WORDS[block.answer]
    amount = block.mean / unit
    return f"{amount:.0f}" if amount >= 100 else f"{amount:.3g}{_MARKS.get(block.answer, '')}"


def column_width(texts: Sequence[Sequence[str]], report: SweepReport) -> int:
    """Return how wide every column is, with a blank on each side."""
    heads = [str(size) for size in report.batch_sizes]
    return 2 + max(map(len, [*heads, *(text for row in texts for text in row)]))


def head(report: SweepReport, width: int) -> str:
    """Write the batch sizes over their columns."""
    return "".join(f"{size:>{width - 1}} " for size in report.batch_sizes)


def lines(
    found: Sequence[Sequence[Block]], texts: Sequence[Sequence[str]], width: int, measure: Measure
) -> Iterator[list[Segment]]:
    """Yield a line of cells for each number of GPUs, each on its colour."""
    for row, said in zip(found, texts, strict=True):
        yield [_cell(block, text, width, measure) for block, text in zip(row, said, strict=True)]


def _cell(block: Block, text: str, width: int, measure: Measure) -> Segment:
    behind = colour(block, measure)
    return Segment(f"{text:>{width - 1}} ", Style(color=behind.ink, bgcolor=behind.css))

"""How much each sample counts: one line that says it, and a table of all samples."""

from collections.abc import Iterator
from functools import partial

from rich.console import RenderableType
from rich.text import Text

from dpdemo.render import markdown
from dpdemo.render.console import Canvas, grid
from dpdemo.render.files import Drawing
from dpdemo.render.markdown import escaped
from dpdemo.reports.weights import SampleWeight, WeightsReport

_HEAD = ("sample", "GPU", "weight", "tokens")


def drawing(report: WeightsReport) -> Drawing:
    """Make the drawing of a report."""
    draw, text = partial(_draw, report), partial(_markdown, report)
    return Drawing.of(report, "dpdemo sample weights", draw, markdown=text)


def _draw(report: WeightsReport, canvas: Canvas) -> Iterator[RenderableType]:
    yield canvas.text(_title(report), style="bold")
    rows = grid(8, 8, 10, "fold", gap=1)
    rows.add_row(*(Text(name, "dim") for name in _HEAD))
    for sample in report.samples:
        rows.add_row(*_row(sample))
    yield rows
    if report.repair:
        yield canvas.text(report.repair, style="green")


def _title(report: WeightsReport) -> str:
    chunks = "+".join(map(str, report.chunks))
    return f"{report.model}, batch {report.batch_size} as {chunks}: {report.verdict}"


def _row(sample: SampleWeight) -> tuple[str, str, str, str]:
    weight = "none" if sample.weight is None else f"{sample.weight:.4f}"
    return str(sample.index), sample.device, weight, str(len(sample.tokens) or 1)


def _markdown(report: WeightsReport) -> Iterator[str]:
    yield f"**{escaped(_title(report))}**\n\n"
    yield from markdown.table(_HEAD, [_row(sample) for sample in report.samples])
    if report.repair:
        yield f"\n{escaped(report.repair)}\n"

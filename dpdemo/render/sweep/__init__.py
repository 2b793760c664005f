"""Drawing a SweepReport: a heat map, JSON, CSV and Markdown."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from dpdemo.render.files import Drawing
from dpdemo.render.sweep.plain import as_markdown
from dpdemo.reports.sweep import SweepReport

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dpdemo.render.console import Canvas


def drawing(report: SweepReport) -> Drawing:
    """Make the drawing of a sweep."""
    return Drawing.of(report, "dpdemo sweep", partial(_draw, report), markdown=partial(as_markdown, report))


def _draw(report: SweepReport, canvas: "Canvas") -> "Iterable[RenderableType]":
    from dpdemo.render.sweep.heatmap import parts

    return parts(report, canvas)

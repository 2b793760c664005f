"""Drawing a SpeedupReport: tables for people, JSON, CSV and Markdown."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from dpdemo.render.files import Drawing
from dpdemo.render.speedup.plain import as_markdown
from dpdemo.reports.speedup import SpeedupReport

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dpdemo.render.console import Canvas


def drawing(report: SpeedupReport) -> Drawing:
    """Make the drawing of a report."""
    return Drawing.of(report, "dpdemo speedup", partial(_draw, report), markdown=partial(as_markdown, report))


def _draw(report: SpeedupReport, canvas: "Canvas") -> "Iterable[RenderableType]":
    from dpdemo.render.speedup.table import parts

    return parts(report, canvas)

"""Drawing a MemoryReport: a table with bars for people, JSON, CSV and Markdown."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from dpdemo.render.files import Drawing
from dpdemo.render.memory.plain import as_markdown
from dpdemo.reports.memory import MemoryReport

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dpdemo.render.console import Canvas


def drawing(report: MemoryReport) -> Drawing:
    """Make the drawing of a report."""
    return Drawing.of(report, "dpdemo memory", partial(_draw, report), markdown=partial(as_markdown, report))


def _draw(report: MemoryReport, canvas: "Canvas") -> "Iterable[RenderableType]":
    from dpdemo.render.memory.table import Picture

    return Picture(report, canvas).parts()

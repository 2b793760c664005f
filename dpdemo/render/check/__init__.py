"""Drawing a CheckReport: for people, and as JSON, CSV, Markdown, SARIF and GitHub's annotations."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from dpdemo.render.check import plain
from dpdemo.render.files import Drawing
from dpdemo.reports.check import CheckReport

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dpdemo.render.console import Canvas


def drawing(report: CheckReport) -> Drawing:
    """Make the drawing of a report."""
    others = {
        "github": partial(plain.as_github, report),
        "sarif": partial(plain.as_sarif, report),
    }
    text = partial(plain.as_markdown, report)
    return Drawing.of(report, "dpdemo check", partial(_draw, report), markdown=text, **others)


def _draw(report: CheckReport, canvas: "Canvas") -> "Iterable[RenderableType]":
    from dpdemo.render.check.text import findings

    return findings(report, canvas)

"""Drawing a SplitReport: table, the tutorial's transcript, Markdown, JSON and CSV, each piece by piece."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from dpdemo.render.files import Drawing
from dpdemo.reports.split import SplitReport

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dpdemo.render.console import Canvas


def drawing(report: SplitReport, *, verbose: bool = False) -> Drawing:
    """Make the drawing of a report, which lists every batch with `verbose`, else each group of equal ones."""
    texts = {
        name: partial(_text, name, report, verbose=verbose)
        for name in ("json", "csv", "markdown", "transcript")
    }
    return Drawing(f"dpdemo {report.command}", partial(_draw, report, verbose=verbose), texts)


def _draw(report: SplitReport, canvas: "Canvas", *, verbose: bool) -> "Iterable[RenderableType]":
    from dpdemo.render.split.table import Picture

    return Picture(report, canvas).parts(verbose=verbose)


def _text(form: str, report: SplitReport, *, verbose: bool) -> Iterable[str]:
    match form:
        case "json":
            from dpdemo.render.json import pieces

            return pieces(report.streamed(verbose=verbose))
        case "csv":
            from dpdemo.render.rows import csv_pieces

            return csv_pieces(report.columns, report.each_row(verbose=verbose))
        case "markdown":
            from dpdemo.render.split import markdown

            return markdown.pieces(report, verbose=verbose)
        case _:
            from dpdemo.render.split import transcript

            return transcript.pieces(report)

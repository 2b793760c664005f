"""Saving a report as the offline page: `--save split.page.html` of simulate, explain, memory and sweep.

Under `.html` alone a report is saved as it stands on the screen, so that all forms say the same; the page is
another thing, and a name of its own tells them apart.
"""

from functools import singledispatch
from pathlib import Path

from dpdemo.prediction.lesson import make_lesson
from dpdemo.prediction.saved import memory_of, model_bytes_of
from dpdemo.render.page import as_page
from dpdemo.reports.base import Report
from dpdemo.reports.explanation import Explanation
from dpdemo.reports.lesson import Lesson
from dpdemo.reports.memory import MemoryReport
from dpdemo.reports.split import SplitReport
from dpdemo.reports.sweep import SweepReport
from dpdemo.saving import replacing

ENDING = ".page.html"


def has_page(report: Report) -> bool:
    """Return whether there is a page of a report."""
    return isinstance(report, SplitReport | Explanation | MemoryReport | SweepReport)


def save_page(lesson: Lesson, path: Path) -> None:
    """Save the page, whole or not at all.

    Raises:
        RunError: if writing fails half-way, as on a full disk.

    """
    with replacing(path) as file:
        file.write(page_text(lesson))


def page_text(lesson: Lesson) -> str:
    """Write the page."""
    from dpdemo import __version__

    return as_page(lesson, __version__)


@singledispatch
def lesson_of(report: Report) -> Lesson:
    """Make the lesson that opens with a report's case, and shows what the report says of its model.

    Raises:
        UsageError: if the case is larger than the page can draw.

    """
    raise TypeError(f"expected a report that has a page, got {type(report).__name__}")


@lesson_of.register
def _(report: SplitReport) -> Lesson:
    return make_lesson(report.config)


@lesson_of.register
def _(report: Explanation) -> Lesson:
    return make_lesson(report.config, model_bytes_of(report))


@lesson_of.register
def _(report: MemoryReport) -> Lesson:
    return make_lesson(report.config, None, memory_of(report), batch_size=report.batch_size)


@lesson_of.register
def _(report: SweepReport) -> Lesson:
    best = report.best
    return make_lesson(batch_size=best.batch_size, gpus=best.gpus)

"""Drawing what was computed: a picture for people, JSON, CSV, Markdown and what else a report has.

Everything here only reads a report. Each report has a file or a folder with one function `drawing`, which
makes its `Drawing`; Rich and the formats are imported when they are first asked for.
"""

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from dpdemo.render.files import Drawing
    from dpdemo.reports.base import Report

_DRAWN_IN = {
    "CheckReport": "check",
    "Diagnosis": "diagnosis",
    "ExecReport": "execution",
    "Explanation": "explanation",
    "MemoryReport": "memory",
    "SpeedupReport": "speedup",
    "SplitReport": "split",
    "SweepReport": "sweep",
    "WeightsReport": "weights",
}

__all__ = ["drawing_of", "make_console", "save", "write"]


def drawing_of(report: "Report", **options: bool) -> "Drawing":
    """Make the drawing of a report; `verbose` lists every batch of a SplitReport by itself."""
    room = importlib.import_module(f"{__name__}.{_DRAWN_IN[type(report).__name__]}")
    found: Drawing = room.drawing(report, **options)
    return found


def write(report: "Report", form: str, console: "Console", **options: bool) -> None:
    """Write a report to a console, piece by piece, so that an epoch of any length can be piped.

    Args:
        report: what to write.
        form: `table`, `json`, `csv`, `markdown`, or what else the report has. All but the table are exact
            plain text: never wrapped, never coloured.
        console: where to. See `make_console`.
        options: see `drawing_of`.

    """
    drawing_of(report, **options).write(form, console)


def save(report: "Report", path: str | os.PathLike[str], **options: bool) -> None:
    """Save a report in the format that the file's ending names; an interrupted save leaves the old file.

    Raises:
        UsageError: if nothing can be saved there (see `saving.check_save_path`).
        RunError: if writing fails half-way, as on a full disk.

    """
    drawing_of(report, **options).save(path)


def make_console(*, stderr: bool = False) -> "Console":
    """Make a console on stdout or stderr that is 80 columns wide in a pipe, unless COLUMNS says otherwise."""
    from dpdemo.render.console import on_stream

    return on_stream(stderr=stderr)

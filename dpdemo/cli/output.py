"""Showing a report: in the files that were named first, then on stdout in the form asked for."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpdemo.cli.options import Settings
from dpdemo.cli.streams import print_hint
from dpdemo.reports.base import Report

if TYPE_CHECKING:
    from dpdemo.render.files import Drawing


def show(report: Report, settings: Settings, **options: bool) -> None:
    """Save the report under every path of `--save`, then write it to stdout.

    The files come first: the reader of stdout may leave before the end, and wants the files all the same.
    """
    save_and_write(report, settings.format, settings.save, quiet=settings.quiet, **options)


def save_and_write(report: Report, form: str, paths: Sequence[Path], *, quiet: bool, **options: bool) -> None:
    """Save a report, then write it to stdout; `options` are those of its drawing."""
    from dpdemo.render import make_console

    save(report, paths, quiet=quiet, **options).write(form, make_console())


def save(report: Report, paths: Sequence[Path], *, quiet: bool, **options: bool) -> "Drawing":
    """Save a report under every path, and give its drawing."""
    from dpdemo.render import drawing_of

    drawing = drawing_of(report, **options)
    for path in paths:
        drawing.save(path)
        if not quiet:
            print_hint(f"saved to {path}")
    return drawing

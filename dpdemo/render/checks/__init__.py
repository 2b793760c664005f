"""Drawing a CheckReport: findings for people, and as JSON, Markdown, SARIF and GitHub's annotations."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dpdemo.atomic import replacing
from dpdemo.render.saving import check_save_path

if TYPE_CHECKING:
    from rich.console import Console

    from dpdemo.preflight import CheckReport

CheckFormat = Literal["text", "json", "github", "sarif", "markdown"]
_FORMATS: dict[str, CheckFormat] = {".json": "json", ".sarif": "sarif", ".md": "markdown", ".txt": "text"}
ENDINGS = tuple(_FORMATS)
"""Endings under which a check's report can be saved; GitHub's annotations are for stdout alone."""


def write_check(report: "CheckReport", format: CheckFormat, console: "Console") -> None:  # noqa: A002 - an option
    """Write what a check found to a console; all formats but `text` are exact plain text."""
    if format == "text":
        from dpdemo.render.checks.text import print_findings

        print_findings(report, console)
        return
    console.file.write(as_text(report, format))


def as_text(report: "CheckReport", format: CheckFormat) -> str:  # noqa: A002 - an option
    """Write a report as one text."""
    if format == "text":
        from io import StringIO

        from dpdemo.render.checks.text import print_findings
        from dpdemo.render.pictures import write_text

        file = StringIO()
        write_text(lambda console: print_findings(report, console), file)
        return file.getvalue()
    from dpdemo.render.checks.plain import WRITERS

    return WRITERS[format](report)


def save_check(report: "CheckReport", path: str | os.PathLike[str]) -> None:
    """Save a report in the format of the file's ending; an interrupted save leaves the old file.

    Raises:
        UsageError: if nothing can be saved there (see `check_save_path`, to ask before anything runs).
        RunError: if writing fails half-way, as on a full disk.

    """
    check_save_path(path, ENDINGS)
    with replacing(path) as file:
        file.write(as_text(report, _FORMATS[Path(path).suffix.lower()]))

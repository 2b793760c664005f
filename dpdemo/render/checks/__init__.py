"""Drawing a CheckReport: findings for people, and as JSON, Markdown, SARIF and GitHub's annotations."""

import os
from typing import TYPE_CHECKING, Literal, get_args

from dpdemo.errors import RunError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from dpdemo.preflight import CheckReport

CheckFormat = Literal["text", "json", "github", "sarif", "markdown"]
CHECK_FORMATS: tuple[CheckFormat, ...] = get_args(CheckFormat)
_ENDINGS: dict[str, CheckFormat] = {".json": "json", ".sarif": "sarif", ".md": "markdown", ".txt": "text"}


def write_check(report: "CheckReport", format: CheckFormat, console: "Console") -> None:  # noqa: A002 - an option
    """Write what a check found to a console; all formats but `text` are exact plain text."""
    if format == "text":
        from dpdemo.render.checks.text import print_findings

        print_findings(report, console)
        return
    console.file.write(as_text(report, format))


def as_text(report: "CheckReport", format: CheckFormat) -> str:  # noqa: A002 - an option
    """Write a report as one text."""
    from dpdemo.render.checks import plain

    if format == "text":
        from io import StringIO

        from rich.console import Console

        from dpdemo.render.checks.text import print_findings

        file = StringIO()
        print_findings(report, Console(file=file, width=80, highlight=False))
        return file.getvalue()
    return plain.WRITERS[format](report)


def format_for(path: str | os.PathLike[str]) -> CheckFormat:
    """Choose a format by the ending of a file.

    Raises:
        UsageError: for an ending that means none.

    """
    ending = os.path.splitext(path)[1].lower()  # noqa: PTH122 - text
    if ending not in _ENDINGS:
        raise UsageError(
            f"expected a file ending in {', '.join(_ENDINGS)}, got {os.fspath(path)!r} - at option `--save`",
            hint="GitHub's annotations go to stdout: --format github",
        )
    return _ENDINGS[ending]


def save_check(report: "CheckReport", path: str | os.PathLike[str]) -> None:
    """Save a report in the format of the file's ending.

    Raises:
        UsageError: for an ending that means no format.
        RunError: if it cannot be written.

    """
    text = as_text(report, format_for(path))
    try:
        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - text or path
            file.write(text)
    except OSError as error:
        raise RunError(f"could not save {os.fspath(path)!r}: {error.strerror or error}") from error

"""Drawing a SplitReport: a table for people, a transcript, JSON, CSV, Markdown, and files of each.

Everything here only reads the report. Rich and the formats are imported when they are first asked for.
"""

import os
from typing import TYPE_CHECKING, Any, Literal, get_args

from dpdemo.render.saving import SUFFIXES, check_save_path

if TYPE_CHECKING:
    from rich.console import Console

    from dpdemo.report import SplitReport

Format = Literal["table", "transcript", "json", "csv", "markdown"]
FORMATS: tuple[Format, ...] = get_args(Format)

__all__ = [
    "FORMATS",
    "SUFFIXES",
    "Format",
    "check_save_path",
    "exec_schema",
    "make_console",
    "report_schema",
    "save",
    "write",
]


def write(
    report: "SplitReport",
    format: Format,  # noqa: A002 - the name of the option that it comes from
    console: "Console",
    *,
    verbose: bool = False,
) -> None:
    """Write a report to a console, piece by piece, so that an epoch of any length can be piped.

    Args:
        report: what to write.
        format: one of FORMATS. All but `table` are exact plain text: never wrapped, never coloured.
        console: where to. See `make_console`.
        verbose: list every batch, instead of one for each group of equal ones.

    """
    if format == "table":
        from dpdemo.render.table import print_report

        print_report(report, console, verbose=verbose)
        return
    from dpdemo.render.glyphs import fit
    from dpdemo.render.plain import pieces

    encoding = console.encoding
    console.file.writelines(fit(piece, encoding) for piece in pieces(report, format, verbose=verbose))


def save(report: "SplitReport", path: str | os.PathLike[str], *, verbose: bool = False) -> None:
    """Save a report in the format that the file's ending names; an interrupted save leaves the old file.

    Raises:
        UsageError: if nothing can be saved there (see `check_save_path`).
        RunError: if writing fails half-way, as on a full disk.

    """
    from dpdemo.render.files import save_report

    save_report(report, path, verbose=verbose)


def make_console(*, stderr: bool = False) -> "Console":
    """Make a console on stdout or stderr that is 80 columns wide in a pipe, unless COLUMNS says otherwise."""
    from dpdemo.render.consoles import on_stream

    return on_stream(stderr=stderr)


def report_schema() -> dict[str, Any]:
    """Publish the JSON schema of `--format json`."""
    import pydantic

    from dpdemo.render.wire import ReportJson

    return pydantic.TypeAdapter(ReportJson).json_schema()


def exec_schema() -> dict[str, Any]:
    """Publish the JSON schema of `exec --report`."""
    import pydantic

    from dpdemo.render.executedjson import ExecJson

    return pydantic.TypeAdapter(ExecJson).json_schema()

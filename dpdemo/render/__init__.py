"""Drawing what was computed: a table for people, a transcript, JSON, CSV, Markdown, and files of each.

Everything here only reads a report. Rich and the formats are imported when they are first asked for. The
functions below draw a SplitReport, an Explanation and a Replay; a check is drawn in checks/, a comparison in
contrast.py, the visible GPUs in devices.py, and what `exec` saw in executed.py.
"""

import os
from typing import TYPE_CHECKING, Literal, get_args

from dpdemo.render.saving import SUFFIXES, check_save_path

if TYPE_CHECKING:
    from rich.console import Console

    from dpdemo.explanation import Explanation
    from dpdemo.report import SplitReport
    from dpdemo.verdict import Replay

Format = Literal["table", "transcript", "json", "csv", "markdown"]
FORMATS: tuple[Format, ...] = get_args(Format)

__all__ = [
    "FORMATS",
    "SUFFIXES",
    "Format",
    "check_save_path",
    "make_console",
    "save",
    "save_explanation",
    "write",
    "write_explanation",
    "write_replay",
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


def write_explanation(explanation: "Explanation", form: Literal["table", "json"], console: "Console") -> None:
    """Write an explanation to a console, as a table or as JSON."""
    if form == "json":
        from dpdemo.render.explainedjson import explanation_json

        console.file.write(explanation_json(explanation))
        return
    from dpdemo.render.explained import print_explanation

    print_explanation(explanation, console)


def save_explanation(explanation: "Explanation", path: str | os.PathLike[str]) -> None:
    """Save an explanation as a picture or as JSON, by the file's ending.

    Raises:
        UsageError: if nothing can be saved there.
        RunError: if writing fails half-way.

    """
    from dpdemo.render.explained import print_explanation
    from dpdemo.render.explainedjson import explanation_json
    from dpdemo.render.files import Drawn, save_drawn

    texts = {".json": lambda: [explanation_json(explanation)]}
    save_drawn(Drawn("dpdemo explain", lambda console: print_explanation(explanation, console), texts), path)


def write_replay(replay: "Replay", form: Literal["table", "json"], console: "Console") -> None:
    """Write the outcome of a replay to a console, in words or as JSON."""
    if form == "json":
        from dpdemo.render.replayedjson import replay_json

        console.file.write(replay_json(replay))
        return
    from dpdemo.render.replayed import print_replay

    print_replay(replay, console)


def make_console(*, stderr: bool = False) -> "Console":
    """Make a console on stdout or stderr that is 80 columns wide in a pipe, unless COLUMNS says otherwise."""
    from dpdemo.render.consoles import on_stream

    return on_stream(stderr=stderr)

"""Where the report of `dpdemo exec` goes when the program is over: stderr, and the file of `--report`."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dpdemo.cli.streams import print_error
from dpdemo.errors import RunError
from dpdemo.execreport import ExecReport

if TYPE_CHECKING:
    from dpdemo.preflight import CheckReport


def check_report_path(path: Path | None) -> Path | None:
    """Check `--report` before anything runs, and make it independent of where the program goes.

    Raises:
        UsageError: nothing can be saved there, or not as JSON.

    """
    if path is None:
        return None
    from dpdemo.render import check_save_path

    check_save_path(path, (".json",), "--report")
    return path.absolute()


def finisher(
    *, quiet: bool, path: Path | None, check: bool = False
) -> Callable[[ExecReport, "CheckReport | None"], None]:
    """Make the function that shows and saves the report; the exit code stays the program's, whatever happens.

    What it needs is imported now: afterwards `sys.path` is the program's, and Python is about to end.
    """
    stderr = sys.stderr
    steps = [*([] if path is None else [_saver(path)]), *([] if quiet else [_shower(stderr)])]
    show_findings = _findings_shower(stderr) if check else None

    def finish(report: ExecReport, findings: "CheckReport | None") -> None:
        with contextlib.suppress(OSError, ValueError):  # closed, or a pipe that nobody reads
            sys.stdout.flush()  # what the program printed comes first
        for step in steps:
            with contextlib.redirect_stderr(stderr), contextlib.suppress(OSError, ValueError):
                step(report)
        if show_findings is not None and findings is not None:
            with contextlib.suppress(OSError, ValueError):
                show_findings(findings)

    return finish


def _shower(stderr: TextIO) -> Callable[[ExecReport], None]:
    from dpdemo.render import make_console
    from dpdemo.render.executed import print_execution

    def show(report: ExecReport) -> None:
        stderr.write("\n")
        print_execution(report, make_console(stderr=True))

    return show


def _findings_shower(stderr: TextIO) -> "Callable[[CheckReport], None]":
    from dpdemo.render import make_console
    from dpdemo.render.checks import write_check

    def show(findings: "CheckReport") -> None:
        stderr.write("\n")
        with contextlib.redirect_stderr(stderr):
            write_check(findings, "text", make_console(stderr=True))

    return show


def _saver(path: Path) -> Callable[[ExecReport], None]:
    from dpdemo.atomic import replacing
    from dpdemo.render.executedjson import execution_json

    def save(report: ExecReport) -> None:
        try:
            with replacing(path) as file:
                file.write(execution_json(report))
        except RunError as error:
            print_error(error)

    return save

"""The report of `dpdemo exec`, written when the program is over: to stderr, and to the file of `--report`."""

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TextIO

from dpdemo.cli.edge import print_error
from dpdemo.errors import RunError
from dpdemo.files import replacing
from dpdemo.results.check import CheckReport
from dpdemo.results.console import make_console
from dpdemo.results.devices import Devices
from dpdemo.results.execution import ExecReport, Traffic
from dpdemo.results.ranks import RanksResult
from dpdemo.results.report import Report


def finisher(*, quiet: bool, path: Path | None) -> Callable[[ExecReport, CheckReport | None], None]:
    """Return a function that prints and saves the reports; the exit code remains the program's."""
    stderr = sys.stderr
    _load()
    steps = [
        *([] if path is None else [partial(_save, path)]),
        partial(_show_problems if quiet else _show, stderr),
    ]

    def finish(report: ExecReport, findings: CheckReport | None) -> None:
        with contextlib.suppress(OSError, ValueError):  # closed, or a pipe that nobody reads
            sys.stdout.flush()  # what the program printed comes first
        checked = [] if findings is None else [partial(_show, stderr, findings)]
        for step in (*(partial(step, report) for step in steps), *checked):
            with contextlib.redirect_stderr(stderr), contextlib.suppress(OSError, ValueError):
                step()

    return finish


def rank_finisher(*, quiet: bool, path: Path | None) -> Callable[[RanksResult], None]:
    """Return a function that prints and saves the report of ranks; why they stopped is always printed."""

    def finish(report: RanksResult) -> None:
        if path is not None:
            _save(path, report)
        with contextlib.suppress(OSError, ValueError):  # closed, or a pipe that nobody reads
            if not quiet:
                _show(sys.stderr, report)
            else:
                sys.stderr.writelines(f"{line}\n" for line in report.problem)

    return finish


def shower(answer: Callable[[ExecReport, CheckReport], Report]) -> Callable[..., None]:
    """Make the function that shows one report of both, on stderr."""
    stderr = sys.stderr
    _load()
    nothing = answer(_NOTHING, CheckReport("", 0, ()))
    str(nothing)  # what drawing it needs is imported now

    def finish(report: ExecReport, findings: CheckReport | None) -> None:
        assert findings is not None  # noqa: S101 - a check was asked for
        with contextlib.suppress(OSError, ValueError):  # closed, or a pipe that nobody reads
            sys.stdout.flush()
        with contextlib.redirect_stderr(stderr), contextlib.suppress(OSError, ValueError):
            _show(stderr, answer(report, findings))

    return finish


_NOTHING = ExecReport("", (), Devices.of("cuda", ()), (), Traffic(0, 0, 0, 0, 0, 0), ())


def _load() -> None:
    """Draw reports of nothing, so that all that drawing needs is imported now.

    Afterwards `sys.path` is the program's, and Python is about to end.
    """
    for form in ("table", "json"):
        _NOTHING.text(form)
    CheckReport("", 0, ()).text("text")
    make_console()


def _show_problems(stderr: TextIO, report: ExecReport) -> None:
    """Print why ranks were stopped."""
    stderr.writelines(f"{line}\n" for ranks in report.ranks for line in ranks.problem)


def _show(stderr: TextIO, report: Report) -> None:
    stderr.write("\n")
    report.write("table", stderr)


def _save(path: Path, report: Report) -> None:
    try:
        with replacing(path) as file:
            file.write(report.to_json())
    except RunError as error:
        print_error(error)

"""The reports of a program that dpdemo ran: to stderr when it is over, and to the file of `--report`."""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

from dpdemo.cli.edge import print_error
from dpdemo.errors import RunError
from dpdemo.files import replacing
from dpdemo.results.check import CheckReport
from dpdemo.results.console import make_console
from dpdemo.results.devices import Devices
from dpdemo.results.execution import ExecReport, Traffic
from dpdemo.results.ranks import RanksResult
from dpdemo.results.report import Report

Finish = Callable[..., None]
"""Takes the report of a program or of its ranks, and perhaps the findings of `--check`."""
_NOTHING = ExecReport("", (), Devices.of("cuda", ()), (), Traffic(0, 0, 0, 0, 0, 0), ())


def finisher(
    *,
    quiet: bool = False,
    path: Path | None = None,
    answer: Callable[[ExecReport, CheckReport], Report] | None = None,
) -> Finish:
    """Return a function that saves and prints the reports; the exit code remains the program's.

    Args:
        quiet: of the report print only why ranks were stopped.
        path: the file of `--report`.
        answer: makes one report of a program's report and its findings.

    """
    stderr = sys.stderr
    _load(answer)

    def finish(report: ExecReport | RanksResult, findings: CheckReport | None = None) -> None:
        with contextlib.suppress(OSError, ValueError):  # closed, or a pipe that nobody reads
            sys.stdout.flush()  # what the program printed comes first
        if path is not None:
            with contextlib.redirect_stderr(stderr), contextlib.suppress(OSError, ValueError):
                _save(path, report)
        shown: list[Report] = [] if quiet else [report]
        if answer is not None and isinstance(report, ExecReport) and findings is not None:
            shown = [answer(report, findings)]
        elif findings is not None:
            shown.append(findings)
        for each in shown:
            with contextlib.redirect_stderr(stderr), contextlib.suppress(OSError, ValueError):
                stderr.write("\n")
                each.write("table", stderr)
        if quiet:
            with contextlib.suppress(OSError, ValueError):
                ranks = report.ranks if isinstance(report, ExecReport) else (report,)
                stderr.writelines(f"{line}\n" for result in ranks for line in result.problem)

    return finish


def _load(answer: Callable[[ExecReport, CheckReport], Report] | None) -> None:
    """Draw reports of nothing, so that all that drawing needs is imported now.

    Afterwards `sys.path` is the program's, and Python is about to end.
    """
    findings = CheckReport("", 0, ())
    for form in ("table", "json"):
        _NOTHING.text(form)
    findings.text("text")
    if answer is not None:
        str(answer(_NOTHING, findings))
    make_console()


def _save(path: Path, report: Report) -> None:
    try:
        with replacing(path) as file:
            file.write(report.to_json())
    except RunError as error:
        print_error(error)

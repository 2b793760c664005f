"""The data of a check, and the words that all its forms share."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from dpdemo.results.findings import NOTHING_CALLED, SEVERITIES, Finding, Severity
from dpdemo.results.formats import Row, plain_fields
from dpdemo.results.report import Report
from dpdemo.wording import counted, printable

IN_THE_PROGRAM = "where the model is called"
"""The place of a change in no file that the check has read."""

_NOUNS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}


@dataclass(frozen=True, slots=True)
class CheckData(Report):
    """The result of one check.

    `silenced` counts the findings that comments hide, `known` those that a baseline does; `notes` say what
    could not be looked at, and why. `compared` says whether any batch had its results compared with those of
    one GPU. `ended_by` is the exception that ended a program, where no rule knows it.
    """

    SCHEMA: ClassVar[str] = "dpdemo.check/1"
    columns: ClassVar[tuple[str, ...]] = (
        *("code", "name", "family", "severity", "subject", "file", "line", "message", "seen_in"),
    )
    model: str
    num_gpus: int
    findings: tuple[Finding, ...]
    batch_sizes: tuple[int, ...] = ()
    silenced: int = 0
    notes: tuple[str, ...] = ()
    known: int = 0
    assumed: tuple[str, ...] = ()
    compared: bool = True
    ended_by: str = ""

    @property
    def nothing_found(self) -> str:
        """Sum up a check without findings; it promises no more than was compared."""
        if not self.num_gpus:
            return "no rule of check is about this error"
        if self.model == NOTHING_CALLED or not self.compared:
            what = "checked" if self.model == NOTHING_CALLED else "compared"
            return f"nothing was {what}" + f"; {self.ending}" * bool(self.ended_by)
        if self.ended_by:
            return self.ending
        return "no pitfalls in what could be looked at" if self.notes else "no pitfalls"

    @property
    def ending(self) -> str:
        """The end of the program, if no rule explains it."""
        if self.ended_by == "KeyboardInterrupt":
            return "the program was interrupted"
        return f"the program ended with {printable(self.ended_by)}, which no rule knows"

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found, and everything was compared."""
        return not (self.findings or self.notes or self.ended_by) and self.compared

    @property
    def remarks(self) -> tuple[str, ...]:
        """Assumptions, and parts that could not be checked."""
        return (*self.assumed, *self.notes)

    def each_row(self) -> Iterator[Row]:
        """Yield a row per finding."""
        for one in self.findings:
            where = (one.subject, one.file, one.line)
            yield one.code, one.name, one.family, one.severity, *where, one.message, "; ".join(one.seen_in)

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return not self.count("error")

    def fails(self, fail_on: Severity) -> bool:
        """Return whether a finding is as bad as `fail_on`, or worse."""
        bad = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
        return any(finding.severity in bad for finding in self.findings)

    def count(self, severity: Severity) -> int:
        """Count the findings of one severity."""
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes that were found, each once, in order."""
        return tuple(dict.fromkeys(finding.code for finding in self.findings))

    def data(self) -> dict[str, Any]:
        """Return the JSON form."""
        return self.part()

    def part(self) -> dict[str, Any]:
        """Return the JSON form as a part of another report's."""
        found = plain_fields(self, "ok")
        return {"gpus" if name == "num_gpus" else name: value for name, value in found.items()}


def seen_text(finding: Finding) -> str:
    """Name up to three batches of a finding."""
    shown = "; ".join(finding.seen_in[:3])
    more = len(finding.seen_in) - 3
    return f"{shown} and {more} more" if more > 0 else shown


def count_text(report: CheckData) -> str:
    """Write `2 errors, 1 warning`."""
    numbers = {severity: report.count(severity) for severity in SEVERITIES}
    return ", ".join(counted(number, _NOUNS[severity]) for severity, number in numbers.items() if number)


def summary(report: CheckData) -> str:
    """Sum a check up in a line."""
    sizes = ", ".join(map(str, report.batch_sizes))
    batches = f", batch {'sizes ' if len(report.batch_sizes) > 1 else 'size '}{sizes}" if sizes else ""
    found = count_text(report) or report.nothing_found
    silenced = f"; {report.silenced} silenced by comments" if report.silenced else ""
    known = f"; {report.known} known by the baseline" if report.known else ""
    where = f" on {counted(report.num_gpus, 'virtual GPU')}" if report.num_gpus else ""
    return f"{report.model}{where}{batches}: {found}{silenced}{known}"

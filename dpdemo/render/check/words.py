"""The words that all forms of a check's report share."""

from dpdemo.reports.check import SEVERITIES, CheckReport, Finding, Severity
from dpdemo.wording import counted

IN_THE_PROGRAM = "where the model is called"
"""Where a change is that stands in no file which the check has read."""

_NOUNS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}


def seen_text(finding: Finding) -> str:
    """Write the batches that a finding was seen in, at most three."""
    shown = "; ".join(finding.seen_in[:3])
    more = len(finding.seen_in) - 3
    return f"{shown} and {more} more" if more > 0 else shown


def count_text(report: CheckReport) -> str:
    """Write `2 errors, 1 warning`."""
    numbers = {severity: report.count(severity) for severity in SEVERITIES}
    return ", ".join(counted(number, _NOUNS[severity]) for severity, number in numbers.items() if number)


def summary(report: CheckReport) -> str:
    """Sum a check up in a line."""
    sizes = ", ".join(map(str, report.batch_sizes))
    batches = f", batch {'sizes ' if len(report.batch_sizes) > 1 else 'size '}{sizes}" if sizes else ""
    found = count_text(report) or report.nothing_found
    silenced = f"; {report.silenced} silenced by comments" if report.silenced else ""
    known = f"; {report.known} known by the baseline" if report.known else ""
    where = f" on {counted(report.num_gpus, 'virtual GPU')}" if report.num_gpus else ""
    return f"{report.model}{where}{batches}: {found}{silenced}{known}"

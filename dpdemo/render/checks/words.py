"""The words that all forms of a check's report share."""

import os

from dpdemo.preflight.evidence import Place
from dpdemo.preflight.findings import SEVERITIES, CheckReport, Finding, Severity
from dpdemo.render.sizes import counted

_NOUNS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}


def relative(file: str) -> str:
    """Write a file as seen from the current folder, if it is in there."""
    here = os.getcwd() + os.sep  # noqa: PTH109 - text
    return file.removeprefix(here)


def place_text(place: Place) -> str:
    """Write `model.py:12`."""
    return f"{relative(place.file)}:{place.line}"


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
    found = count_text(report) or "no pitfalls"
    silenced = f"; {report.silenced} silenced by comments" if report.silenced else ""
    return f"{report.model} on {report.num_gpus} virtual GPUs{batches}: {found}{silenced}"

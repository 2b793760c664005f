"""A check's report for programs: SARIF, and GitHub's workflow commands."""

import json
from collections.abc import Iterator, Sequence

from dpdemo import __version__
from dpdemo.results.findings import Finding, RulePage
from dpdemo.wording import harmless, printable

_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def as_github(findings: Sequence[Finding], remarks: Sequence[str], summary: str) -> Iterator[str]:
    """Write a report as workflow commands, which GitHub shows as annotations of a pull request."""
    for finding in findings:
        where = "" if finding.place is None else f"file={_property(finding.file or '')},line={finding.line},"
        text = f"{printable(finding.message)}\n{_repair(finding)}"
        title = _property(f"{finding.code} {finding.name}")
        yield f"::{_COMMANDS[finding.severity]} {where}title={title}::{_data(text)}\n"
    for note in remarks:
        yield f"::notice title=dpdemo check::{_data(printable(note))}\n"
    yield f"{printable(summary)}\n"


def _repair(finding: Finding) -> str:
    """Write what to change, and say where it is only an example."""
    instead = "For example, instead of" if finding.is_example else "Instead of"
    return f"{instead}:{_code(finding.before)}\nwrite:{_code(finding.after)}"


def _code(text: str) -> str:
    """Write a line of code behind a word, and several below it."""
    return f" {harmless(text)}" if "\n" not in text else f"\n{harmless(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(printable(text)).replace(":", "%3A").replace(",", "%2C")


def as_sarif(findings: Sequence[Finding], remarks: Sequence[str], _: str) -> Iterator[str]:
    """Write a report as SARIF 2.1.0, for code scanning."""
    pages = {finding.code: finding.rule for finding in findings}
    run = {
        "tool": {
            "driver": {
                "name": "dpdemo check",
                "version": __version__,
                "rules": [_sarif_rule(pages[code]) for code in sorted(pages)],
            }
        },
        "results": [_sarif_result(finding) for finding in findings],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [{"message": {"text": note}} for note in remarks],
            }
        ],
    }
    yield json.dumps({"$schema": _SARIF, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _sarif_rule(rule: RulePage) -> dict[str, object]:
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.section("What happens")},
        "help": {"text": f"Before: {rule.section('Before')}\nAfter: {rule.section('After')}"},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _sarif_result(finding: Finding) -> dict[str, object]:
    result: dict[str, object] = {
        "ruleId": finding.code,
        "level": _LEVELS[finding.severity],
        "message": {"text": finding.message},
    }
    if finding.place is not None:
        result["locations"] = [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": (finding.file or "").replace("\\", "/")},
                    "region": {"startLine": max(finding.place.line, 1)},
                }
            }
        ]
    return result

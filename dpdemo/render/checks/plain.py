"""A check's report for programs: SARIF, GitHub's workflow commands, and Markdown; JSON is in jsonform.py."""

import json
from collections.abc import Callable
from typing import Any

from dpdemo import __version__
from dpdemo.preflight.findings import CheckReport, Finding
from dpdemo.preflight.registry import Rule, rules
from dpdemo.render.checks.jsonform import check_json
from dpdemo.render.checks.words import place_text, relative, summary

_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def as_github(report: CheckReport) -> str:
    """Write a report as workflow commands, which GitHub shows as annotations of a pull request."""
    known = {rule.code: rule for rule in rules()}
    lines = []
    for finding in report.findings:
        rule = known[finding.code]
        where = ""
        if finding.place is not None:
            where = f"file={_property(relative(finding.place.file))},line={finding.place.line},"
        text = f"{finding.message}\nInstead of: {rule.section('Before')}\nwrite: {rule.section('After')}"
        title = _property(f"{finding.code} {rule.name}")
        lines.append(f"::{_COMMANDS[finding.severity]} {where}title={title}::{_data(text)}\n")
    lines += [f"::notice title=dpdemo check::{_data(note)}\n" for note in report.notes]
    return "".join(lines) + summary(report) + "\n"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def as_sarif(report: CheckReport) -> str:
    """Write a report as SARIF 2.1.0, for code scanning."""
    found = set(report.codes)
    run = {
        "tool": {
            "driver": {
                "name": "dpdemo check",
                "version": __version__,
                "rules": [_sarif_rule(rule) for rule in rules() if rule.code in found],
            }
        },
        "results": [_sarif_result(finding) for finding in report.findings],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [{"message": {"text": note}} for note in report.notes],
            }
        ],
    }
    return json.dumps({"$schema": _SARIF, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _sarif_rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.section("What happens")},
        "help": {"text": f"Before: {rule.section('Before')}\nAfter: {rule.section('After')}"},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _sarif_result(finding: Finding) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "level": _LEVELS[finding.severity],
        "message": {"text": finding.message},
    }
    if finding.place is not None:
        result["locations"] = [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": relative(finding.place.file).replace("\\", "/")},
                    "region": {"startLine": max(finding.place.line, 1)},
                }
            }
        ]
    return result


def as_markdown(report: CheckReport) -> str:
    """Write a report as Markdown: a table of findings, and the fix of each rule once."""
    known = {rule.code: rule for rule in rules()}
    lines = [f"**{summary(report)}**", *(f"\nNote: {note}" for note in report.notes), ""]
    if report.findings:
        lines += ["| severity | rule | where | what |", "|---|---|---|---|"]
    for finding in report.findings:
        where = place_text(finding.place) if finding.place else ""
        rule = f"{finding.code} {known[finding.code].name}"
        lines.append(f"| {finding.severity} | {rule} | {where} | {_cell(finding.message)} |")
    for code in report.codes:
        rule_page = known[code]
        before, after = rule_page.section("Before"), rule_page.section("After")
        lines += ["", f"{code}: {rule_page.title}", "", "```diff", f"- {before}", f"+ {after}", "```"]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


WRITERS: dict[str, Callable[[CheckReport], str]] = {
    "json": check_json,
    "github": as_github,
    "sarif": as_sarif,
    "markdown": as_markdown,
}

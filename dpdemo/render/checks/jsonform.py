"""The JSON form of a check's report, `dpdemo.check/1`: what stands under each key."""

import json
from typing import Literal

from typing_extensions import TypedDict  # pydantic brings it, and needs it before Python 3.12

from dpdemo.preflight.findings import CheckReport, Finding, Severity
from dpdemo.preflight.registry import Rule, rules
from dpdemo.render.checks.words import relative

SCHEMA: Literal["dpdemo.check/1"] = "dpdemo.check/1"


class FindingJson(TypedDict):
    """One cause: what was found and where, and what its rule advises.

    `file` and `line` are null where no line of the model's code stands for it; `seen_in` names the batches.
    """

    code: str
    name: str
    family: str
    severity: Severity
    subject: str
    message: str
    file: str | None
    line: int | None
    seen_in: list[str]
    before: str
    after: str
    references: list[str]


class CheckJson(TypedDict):
    """What a check found: `ok` where no finding is an error; `silenced` counts those that comments hide.

    `notes` say what could not be looked at, and why.
    """

    schema: Literal["dpdemo.check/1"]
    model: str
    gpus: int
    batch_sizes: list[int]
    ok: bool
    silenced: int
    notes: list[str]
    findings: list[FindingJson]


def check_json(report: CheckReport) -> str:
    """Write a report as JSON, with what a finding's rule advises."""
    known = {rule.code: rule for rule in rules()}
    found = CheckJson(
        schema=SCHEMA,
        model=report.model,
        gpus=report.num_gpus,
        batch_sizes=list(report.batch_sizes),
        ok=report.ok,
        silenced=report.silenced,
        notes=list(report.notes),
        findings=[_finding(finding, known[finding.code]) for finding in report.findings],
    )
    return json.dumps(found, indent=1) + "\n"


def _finding(finding: Finding, rule: Rule) -> FindingJson:
    place = finding.place
    return FindingJson(
        code=finding.code,
        name=rule.name,
        family=rule.family,
        severity=finding.severity,
        subject=finding.subject,
        message=finding.message,
        file=relative(place.file) if place else None,
        line=place.line if place else None,
        seen_in=list(finding.seen_in),
        before=rule.section("Before"),
        after=rule.section("After"),
        references=rule.section("References").split(", "),
    )

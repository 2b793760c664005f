"""One cause, one finding: findings that another one explains are dropped, those of one cause merged."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from dpdemo.checking.errors import is_of_devices
from dpdemo.checking.evidence import Evidence, first_line
from dpdemo.checking.questions.failures import failures
from dpdemo.checking.registry import SYMPTOMS, Rule, rule_of, rules
from dpdemo.checking.repairs import Hit
from dpdemo.results.findings import SEVERITIES, Finding


class Findings(NamedTuple):
    """The findings about some evidence, and a note for each rule that could not be applied to it."""

    merged: tuple[Finding, ...]
    notes: tuple[str, ...] = ()


def findings_of(evidence: Evidence, chosen: tuple[Rule, ...]) -> Findings:
    """Apply all rules, drop the findings that others explain, and merge those of one cause.

    Rules that are not chosen explain, too. A rule that raises loses the findings that it has not made yet.
    """
    found: list[tuple[Rule, Hit, Finding]] = []
    notes: list[str] = []
    codes = {rule.code for rule in chosen}
    for rule in (*chosen, *(rule for rule in rules() if rule.code not in codes)):
        try:
            for each in rule.look(evidence):
                found.append((rule, each, rule.finding(each, evidence.split_by)))  # noqa: PERF401 - those before an exception stay
        except Exception as error:  # noqa: BLE001 - a bug of a rule must not end the report
            notes.append(_not_applied(rule, error))
    findings = [finding for finding in _unexplained(found) if finding.code in codes]
    return Findings(_as_given(merge(_with_an_error(findings, evidence, chosen)), evidence), tuple(notes))


def _unexplained(found: list[tuple[Rule, Hit, Finding]]) -> list[Finding]:
    """Drop each finding that is a symptom of another one; a note explains only what it names itself."""
    kept: list[Finding] = []
    explained = set[str]()
    for rule, details, finding in sorted(found, key=lambda each: _generality(*each[:2])):
        if explained.isdisjoint((*rule.symptoms, *details.symptoms)):
            kept.append(finding)
            explained.update(details.explains, () if finding.severity == "info" else rule.explains)
    return kept


def _generality(rule: Rule, found: Hit) -> int:
    """Rank a finding by its most general symptom: what explains it comes before it."""
    kinds = (symptom.partition(" ")[0] for symptom in (*rule.symptoms, *found.symptoms))
    return max(map(SYMPTOMS.index, kinds), default=-1)


def _not_applied(rule: Rule, error: Exception) -> str:
    return (
        f"rule {rule.code} ({rule.name}) was not applied, because it raised {type(error).__name__}: "
        f"{first_line(str(error))}; this is a bug in dpdemo, please report it"
    )


def _with_an_error(findings: list[Finding], evidence: Evidence, chosen: tuple[Rule, ...]) -> list[Finding]:
    """Make sure that a run which raised in a replica, and not on one GPU, has an error."""
    raised = [
        (probe, error)
        for probe, error in failures(evidence)
        if error.stage == "replica" and probe.single.raised is None and probe.is_real
    ]
    if not raised or any(finding.severity == "error" for finding in findings):
        return findings
    suspect = min((each.code for each in findings if "devices" in rule_of(each.code).explains), default="")
    if suspect:
        return [replace(each, severity="error") if each.code == suspect else each for each in findings]
    probe, error = raised[0]
    what = f"replica {error.replica} raises {error}"
    code = "DP391" if is_of_devices(error.message) else "DP390"
    if all(rule.code != code for rule in chosen):
        return findings
    return [*findings, Finding(rule_of(code), "error", str(error.place), what, error.place, (str(probe),))]


def merge(findings: list[Finding]) -> tuple[Finding, ...]:
    """Join what is the same cause seen in several probes; the worst severity and its words stay.

    One line of a class that the model holds many times, such as a layer's, is one cause too.
    """
    causes: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        causes.setdefault((finding.code, _cause(finding)), []).append(finding)
    return in_order(_joined(group) for group in causes.values())


def _as_given(findings: tuple[Finding, ...], evidence: Evidence) -> tuple[Finding, ...]:
    """Make notes of state that is changed in training alone, where the model is given in evaluation."""
    if evidence.is_program or evidence.scan.is_training:
        return findings
    return in_order(
        replace(
            finding,
            severity="info",
            message=f"{finding.message}; so in training, and the model is given in evaluation",
        )
        if rule_of(finding.code).of_training and finding.severity != "info" and _is_of_training(finding)
        else finding
        for finding in findings
    )


def _is_of_training(finding: Finding) -> bool:
    return bool(finding.seen_in) and all(batch.endswith("train") for batch in finding.seen_in)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings: the worst first, and of each cause one."""
    key = lambda finding: (SEVERITIES.index(finding.severity), finding.code, finding.subject)  # noqa: E731
    return tuple(sorted(dict.fromkeys(findings), key=key))


def _cause(finding: Finding) -> str:
    if finding.place is None or "." not in finding.subject:
        return finding.subject
    return f"{finding.place} {finding.subject.rpartition('.')[2]}"


def _joined(group: list[Finding]) -> Finding:
    """Merge the findings of a cause into the worst of them, with all batches that showed it."""
    worst = min(group, key=lambda finding: SEVERITIES.index(finding.severity))
    others = len({finding.subject for finding in group}) - 1
    return replace(
        worst,
        message=worst.message + (f" (and {others} more like it)" if others else ""),
        seen_in=tuple(dict.fromkeys(batch for finding in group for batch in finding.seen_in)),
        place=next((finding.place for finding in (worst, *group) if finding.place is not None), None),
    )

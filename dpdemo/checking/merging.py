"""One cause, one finding: joining what several probes saw, and what one line of code causes."""

from collections.abc import Iterable
from dataclasses import replace

from dpdemo.checking.evidence import Evidence
from dpdemo.checking.looking import failures, two_devices
from dpdemo.checking.registry import Rule, rule_of
from dpdemo.checking.rewriting.keeping import LATE
from dpdemo.checking.rewriting.likewise import for_all_parts
from dpdemo.reports.check import SEVERITIES, Finding

_EXPLAINED = {"DP401": "DP501", "DP205": "DP201"}
"""Rules that only repeat what another one says about the same subject, as of a loss that is a vector."""

_CRASHES = ("DP302", "DP303", "DP304", "DP391", "DP390")
"""Rules about a replica that raised, the likeliest first."""


def with_an_error(findings: list[Finding], evidence: Evidence, chosen: tuple[Rule, ...]) -> list[Finding]:
    """Make sure that a run which raised in a replica, and not on one GPU, has an error."""
    raised = [
        (probe, error)
        for probe, error in failures(evidence)
        if error.stage == "replica" and probe.single.raised is None and probe.is_real
    ]
    if not raised or any(finding.severity == "error" for finding in findings):
        return findings
    for code in _CRASHES:
        suspects = [finding for finding in findings if finding.code == code]
        if suspects:
            return [replace(one, severity="error") if one in suspects else one for one in findings]
    probe, error = raised[0]
    what = f"replica {error.replica} raises {error}"
    code = "DP391" if two_devices(error) else "DP390"
    if all(rule.code != code for rule in chosen):
        return findings
    return [*findings, Finding(rule_of(code), "error", str(error.place), what, error.place, (str(probe),))]


def merge(findings: list[Finding]) -> tuple[Finding, ...]:
    """Join what is the same cause seen in several probes; the worst severity and its words stay.

    One line of a class that the model holds many times, such as a layer's, is one cause too.
    """
    causes: dict[tuple[str, str], list[Finding]] = {}
    told = {(finding.code, finding.subject) for finding in findings if finding.severity != "info"}
    for finding in findings:
        if (_EXPLAINED.get(finding.code), finding.subject) in told:
            continue
        causes.setdefault((finding.code, _cause(finding)), []).append(finding)
    return in_order(_without_consequences([_joined(group) for group in causes.values()]))


def _without_consequences(findings: list[Finding]) -> list[Finding]:
    """Leave out results that depend on the batch (DP502) where that comes of state that follows the batch.

    So it is where the repair of that state says that forward reads it, or takes the reading out of forward.
    """
    others = [one for one in findings if one.code != "DP502"]
    late = [one for one in others if any(LATE in change.after for change in one.also)]
    seen = {batch for one in late for batch in one.seen_in}
    repairs = {_lines_of(one) for one in others if one.own_after}
    return [
        one
        for one in findings
        if one.code != "DP502" or not (seen.issuperset(one.seen_in) or _lines_of(one) in repairs)
    ]


def _lines_of(finding: Finding) -> object:
    return finding.place, finding.own_before, finding.own_after, finding.also


_OF_TRAINING = ("DP301", "DP305", "DP306", "DP309", "DP313", "DP316")
"""Rules about state that a forward may change in training alone."""


def as_given(findings: tuple[Finding, ...], evidence: Evidence) -> tuple[Finding, ...]:
    """Make notes of state that is changed in training alone, where the model is given in evaluation."""
    if evidence.is_program or evidence.scan.is_training:
        return findings
    return in_order(
        replace(
            one,
            severity="info",
            message=f"{one.message}; so in training, and the model is given in evaluation",
        )
        if one.code in _OF_TRAINING and one.severity != "info" and _is_of_training(one)
        else one
        for one in findings
    )


def _is_of_training(finding: Finding) -> bool:
    return bool(finding.seen_in) and all(batch.endswith("train") for batch in finding.seen_in)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings: the worst first, and of each cause one."""
    key = lambda one: (SEVERITIES.index(one.severity), one.code, one.subject)  # noqa: E731
    return tuple(sorted(dict.fromkeys(findings), key=key))


def _cause(finding: Finding) -> str:
    if finding.place is None or "." not in finding.subject:
        return finding.subject
    return f"{finding.place} {finding.subject.rpartition('.')[2]}"


def _joined(group: list[Finding]) -> Finding:
    worst = min(group, key=lambda one: SEVERITIES.index(one.severity))
    others = len({one.subject for one in group}) - 1
    return replace(
        worst,
        message=worst.message + (f" (and {others} more like it)" if others else ""),
        seen_in=tuple(dict.fromkeys(batch for one in group for batch in one.seen_in)),
        place=next((one.place for one in (worst, *group) if one.place is not None), None),
        also=for_all_parts([worst, *group]) if others else worst.also,
    )

"""One cause, one finding: which findings are consequences of others, and which are one cause."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from dpdemo.checking.errors import is_of_devices
from dpdemo.checking.evidence import Evidence, first_line
from dpdemo.checking.questions.failures import failures
from dpdemo.checking.registry import Rule, rule_of
from dpdemo.results.findings import SEVERITIES, Finding

HIDDEN_BY = {
    "DP201": ("DP214",),
    "DP203": ("DP214",),
    "DP205": ("DP214",),
    "DP313": ("DP311",),
    "DP390": (
        "DP106", "DP201", "DP205", "DP207", "DP208", "DP212", "DP214", "DP216", "DP309", "DP311", "DP317",
    ),
    "DP391": ("DP106", "DP208", "DP302", "DP303", "DP304", "DP309", "DP602"),
    "DP405": ("DP317",),
    "DP406": ("DP205", "DP214"),
    "DP410": ("DP207", "DP208", "DP216"),
    "DP501": ("DP408",),
    "DP502": ("DP205", "DP207", "DP208", "DP214", "DP216"),
    "DP590": (
        "DP1", "DP20", "DP210", "DP211", "DP212", "DP214", "DP216", "DP301", "DP302", "DP303", "DP304",
        "DP305", "DP308", "DP309", "DP310", "DP311", "DP312", "DP313", "DP314", "DP317", "DP39", "DP4", "DP5",
        "DP601", "DP602",
    ),
}  # fmt: skip
"""Rules that keep silent where one of these codes, or of codes that begin so, has found the cause."""

_REPEATED = {"DP401": "DP501", "DP205": "DP201"}
"""Rules that only repeat what another one says about the same subject, as of a loss that is a vector."""
_CRASHES = ("DP302", "DP303", "DP304")
"""Rules about what makes a replica raise, the likeliest first."""
_OF_TRAINING = ("DP301", "DP305", "DP306", "DP309", "DP313", "DP316")
"""Rules about state that a forward may change in training alone."""


class Findings(NamedTuple):
    """The findings about some evidence, and a note for each rule that could not be applied to it."""

    merged: tuple[Finding, ...]
    notes: tuple[str, ...] = ()


def findings_of(evidence: Evidence, chosen: tuple[Rule, ...]) -> Findings:
    """Let the rules look at the evidence, the hidden ones last, and join what is one cause.

    A rule that raises costs what it has not found yet, and no other rule.
    """
    found: list[Finding] = []
    notes: list[str] = []
    for rule in sorted(chosen, key=lambda rule: rule.code in HIDDEN_BY):
        hiding = HIDDEN_BY.get(rule.code, ())
        if not any(
            finding.code.startswith(hiding) and finding.severity != "info" for finding in found if hiding
        ):
            try:
                for finding in rule.findings(evidence):
                    found.append(finding)  # noqa: PERF402 - those before an exception stay
            except Exception as error:  # noqa: BLE001 - a bug of a rule is no end of the report
                notes.append(_not_applied(rule, error))
    return Findings(_as_given(merge(_with_an_error(found, evidence, chosen)), evidence), tuple(notes))


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
    for code in _CRASHES:
        suspects = [finding for finding in findings if finding.code == code]
        if suspects:
            return [replace(each, severity="error") if each in suspects else each for each in findings]
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
    told = {(finding.code, finding.subject) for finding in findings if finding.severity != "info"}
    for finding in findings:
        if (_REPEATED.get(finding.code), finding.subject) not in told:
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
        if finding.code in _OF_TRAINING and finding.severity != "info" and _is_of_training(finding)
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

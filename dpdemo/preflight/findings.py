"""What a check found: torch-free, frozen, and the same for every renderer.

A `Finding` names the cause, in the user's words: an attribute, an argument, a line or a factor. The page of
its rule says what happens in general, why, and what to do.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from dpdemo.preflight.evidence import Place

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause. `subject` tells it from others of the same rule: two findings that share it are one."""

    code: str
    severity: Severity
    subject: str
    message: str
    place: Place | None = None
    seen_in: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of one check; `notes` say what could not be looked at, and why."""

    model: str
    num_gpus: int
    findings: tuple[Finding, ...]
    batch_sizes: tuple[int, ...] = ()
    silenced: int = 0
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return not self.count("error")

    def count(self, severity: Severity) -> int:
        """Count the findings of one severity."""
        return sum(finding.severity == severity for finding in self.findings)

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes that were found, each once, in order."""
        return tuple(dict.fromkeys(finding.code for finding in self.findings))


def merge(findings: list[Finding]) -> tuple[Finding, ...]:
    """Join what is the same cause seen in several probes; the worst severity and its words stay.

    One line of a class that the model holds many times, such as a layer's, is one cause too.
    """
    causes: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        causes.setdefault((finding.code, _cause(finding)), []).append(finding)
    return in_order(_joined(group) for group in causes.values())


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
    )

"""What a check found: torch-free, frozen, and the same for every renderer.

A `Finding` names the cause, in the user's words: an attribute, an argument, a line or a factor. The page of
its rule
says what happens in general, why, and what to do.
"""

from dataclasses import dataclass, field, replace
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

    @property
    def is_error(self) -> bool:
        """Whether a check that holds it has failed."""
        return self.severity == "error"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of one check."""

    model: str
    num_gpus: int
    findings: tuple[Finding, ...]
    batch_sizes: tuple[int, ...] = ()
    silenced: int = 0
    notes: tuple[str, ...] = field(default=())

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
    """Join what is the same cause seen in several probes; the worst severity and its words stay."""
    merged: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        key = (finding.code, finding.subject)
        known = merged.get(key)
        if known is None:
            merged[key] = finding
            continue
        worse = min(known, finding, key=lambda one: SEVERITIES.index(one.severity))
        seen = tuple(dict.fromkeys((*known.seen_in, *finding.seen_in)))
        merged[key] = replace(worse, seen_in=seen, place=worse.place or known.place or finding.place)
    return tuple(
        sorted(merged.values(), key=lambda one: (SEVERITIES.index(one.severity), one.code, one.subject))
    )

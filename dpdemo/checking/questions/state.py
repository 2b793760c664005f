"""State that forward changes."""

import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Evidence, Probe, StateChange
from dpdemo.results.findings import Place

STATISTICS = ("running_mean", "running_var")
"""The buffers of a BatchNorm that follow its batches."""


def changes_of(evidence: Evidence, *kinds: str) -> Iterator[tuple[Probe, StateChange]]:
    """List what forward changed of these kinds of state, in each probe in which a replica ran."""
    for probe in evidence.probes:
        replicas = probe.call.replicas if probe.call else ()
        if any(replica.output is not None or replica.raised for replica in replicas):
            yield from ((probe, change) for change in probe.changes if change.kind in kinds)


def gets_other_data(change: StateChange) -> bool:
    """Whether forward gives the same parameter other numbers, as `self.w.data = ...` does, in vain."""
    is_assigned = re.match(rf"[\w.\[\]]+\.{change.name}\s*=(?!=)", change.written) is not None
    return change.is_lost and not is_assigned and change.before == change.single


def place_of(change: StateChange) -> Place | None:
    """Return the line that changes a piece of state, or the one that sets it first."""
    return change.written_at or change.place

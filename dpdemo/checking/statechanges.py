"""What forward changes of the model's state, as rules ask for it."""

import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Evidence, Probe, StateChange
from dpdemo.checking.looking import STATISTICS


def changes_of(evidence: Evidence, *kinds: str) -> Iterator[tuple[Probe, StateChange]]:
    """List what forward changed of these kinds of state, in each probe that came to run it."""
    for probe in evidence.probes:
        if not _ran(probe):
            continue
        for change in probe.changes:
            if change.kind in kinds:
                yield probe, change


def _ran(probe: Probe) -> bool:
    """Return whether any replica came to run forward: a call that failed before says nothing about state."""
    call = probe.call
    return call is not None and any(replica.output is not None or replica.raised for replica in call.replicas)


def is_of_data(change: StateChange) -> bool:
    """Return whether forward gives the same parameter other numbers: `self.w.data = ...` and its like."""
    is_lost = change.single_changed and not change.parallel_changed
    last = change.path.rpartition(".")[2]
    is_assigned = re.match(rf"[\w.\[\]]+\.{last}\s*=(?!=)", change.written) is not None
    return is_lost and not is_assigned and change.before == change.single


def lost_in(probe: Probe) -> list[StateChange]:
    """List what forward changes and replicas lose: it goes outside together."""
    return [
        one
        for one in probe.changes
        if not one.harmless
        and (
            (one.kind == "attribute" and one.single_changed and not one.parallel_changed)
            or (one.kind == "container" and one.parallel_changed)
            or (one.kind == "buffer" and is_off(one))
        )
    ]


def is_off(change: StateChange) -> bool:
    """Return whether a buffer, but for BatchNorm's statistics, ends otherwise than on one GPU."""
    if change.path.rpartition(".")[2] in STATISTICS or change.same:
        return False
    return change.single_changed or change.parallel_changed

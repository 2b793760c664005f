"""State that forward changes."""

import re
from collections.abc import Callable, Iterable, Iterator

from dpdemo.checking.evidence import Evidence, Norm, Probe, StateChange
from dpdemo.results.findings import Place

STATISTICS = ("running_mean", "running_var")
"""The buffers of a BatchNorm that follow its batches."""


def changes_of(evidence: Evidence, *kinds: str) -> Iterator[tuple[Probe, StateChange]]:
    """List what forward changed of these kinds of state, in each probe in which a replica ran."""
    for probe in evidence.probes:
        replicas = probe.call.replicas if probe.call else ()
        if any(replica.output is not None or replica.raised for replica in replicas):
            yield from ((probe, change) for change in probe.changes if change.kind in kinds)


Change = tuple[Probe, StateChange]


def by_cause(
    changes: Iterable[Change], cause: Callable[[Probe, StateChange], object]
) -> tuple[list[list[Change]], dict[str, Change]]:
    """Group changes by their cause, and put those aside, by path, that nothing depends on."""
    groups: dict[object, list[Change]] = {}
    harmless: dict[str, Change] = {}
    for probe, change in changes:
        if change.harmless:
            harmless.setdefault(change.path, (probe, change))
        else:
            groups.setdefault(cause(probe, change), []).append((probe, change))
    return list(groups.values()), harmless


def synchronised(evidence: Evidence, probe: Probe) -> list[Norm]:
    """List the norms that clamp by eps, and whose replicas were seen to take their statistics together."""
    if probe.mode != "train" or probe.call is None or len(probe.call.replicas) < 2:
        return []
    statistics = [change for change in probe.changes if change.name in STATISTICS]
    followed = {statistic.path.rpartition(".")[0] for statistic in statistics if statistic.parallel_changed}
    apart = {statistic.path.rpartition(".")[0] for statistic in statistics if not statistic.same}
    clamping = [norm for norm in evidence.scan.norms if norm.is_own and norm.clamps]
    return [norm for norm in clamping if norm.path in followed and norm.path not in apart]


def gets_other_data(change: StateChange) -> bool:
    """Whether forward gives the same parameter other numbers, as `self.w.data = ...` does, in vain."""
    is_assigned = re.match(rf"[\w.\[\]]+\.{change.name}\s*=(?!=)", change.written.text) is not None
    return change.is_lost and not is_assigned and change.before == change.single


def place_of(change: StateChange) -> Place | None:
    """Return the line that changes a piece of state, or the one that sets it first."""
    return change.written.place or change.place

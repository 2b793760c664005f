"""What a replica that raised stumbled over: an attribute, an object, or a part that reads the whole model."""

import re

from dpdemo.checking.evidence import Evidence, Held, Probe, Raised
from dpdemo.checking.looking import crossed_devices, failures, two_devices
from dpdemo.checking.places import source_around


def is_named_in(name: str, error: Raised) -> bool:
    """Whether the user's functions that an exception went through name an attribute.

    Not the lines alone: what was at fault may have got another name a line before, as in a loop over it.
    """
    source = "\n".join(source_around(place) for place in error.places)
    return re.search(rf"\.{re.escape(name)}\b|['\"]{re.escape(name)}['\"]", source) is not None


def failed_through(evidence: Evidence) -> list[tuple[Held, Probe, Raised]]:
    """List what ties a part of the model to the original around it, and a replica that failed through it.

    The original is on GPU 0, and has nothing of what the replica around the part has set on itself.
    """
    return [
        (held, probe, error)
        for held in evidence.scan.of_kind("ancestor")
        for probe, error in failures(evidence)
        if error.stage == "replica" and not two_devices(error)
        if is_named_in(held.path.rpartition(".")[2], error)
    ][:1]


def placed_in_forward(evidence: Evidence) -> set[str]:
    """Name the objects on `self` with tensors on the CPU, which forward changes, and a replica fails over."""
    if not any(crossed_devices(evidence)):
        return set()
    changed = {
        change.path for probe in evidence.probes for change in probe.changes if change.parallel_changed
    }
    objects = (
        one for one in evidence.scan.of_kind("tensor") if ", as `" in one.detail and "on cpu" in one.detail
    )
    return {one.path for one in objects if one.path in changed}

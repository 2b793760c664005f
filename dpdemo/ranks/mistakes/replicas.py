"""No gradient was averaged, or replicas differ.

The copies of a model under DistributedDataParallel are equal as long as each step uses averaged gradients.

Seen in: gradient collectives, and a checksum of the parameters

Instead: the last backward pass before a step goes through the wrapped module, outside of `no_sync()`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpdemo.ranks.events import Unsynced
from dpdemo.ranks.mistakes.registry import mistake
from dpdemo.ranks.observe import ADDED
from dpdemo.results.ranks import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpdemo.ranks.events import Parameters
    from dpdemo.ranks.mistakes.evidence import Evidence


@mistake("replicas")
def find(evidence: Evidence) -> Iterator[Mistake]:
    """Name replicas whose parameters differ from some step on, to the end."""
    for team in evidence.wrapped:
        first = team.first_difference()
        if first is None:
            continue
        steps = first.steps
        differ = f"the parameters differ between ranks {f'after step {steps}' if steps else 'before step 1'}"
        unsynced = [event for noted in team.noted for event in noted[Unsynced]] if steps else []
        yield _unsynced(differ, unsynced) if unsynced else _differ(differ, first)


def _differ(differ: str, first: Parameters) -> Mistake:
    advice = "every rank has to make the same optimizer step from the same gradients"
    if not first.steps:
        advice = "load a checkpoint on every rank, or before the model is wrapped"
    if first.added:
        advice = f"{', '.join(first.added)} {ADDED}"
    return Mistake(differ.capitalize(), first.at, advice)


def _unsynced(differ: str, unsynced: Sequence[Unsynced]) -> Mistake:
    unused = next((event.unused for event in unsynced if event.unused), ())
    bypass = next((event.bypass for event in unsynced if ":" in event.bypass), None)
    at = unsynced[0].at
    advice = "the last backward pass before a step has to go through the module, outside of no_sync()"
    if unused:
        advice = f"no gradient reached {', '.join(unused)}: find_unused_parameters=True"
    elif bypass:
        at, advice = bypass, "call the DistributedDataParallel module itself, not its `.module`"
    return Mistake(f"No gradient was averaged; {differ}", at, advice)

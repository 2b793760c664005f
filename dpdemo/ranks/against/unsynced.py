"""Gradients or parameters that differ between the ranks themselves."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from dpdemo.ranks.against.compare import Parameter, Step, Vector, close, together, vector
from dpdemo.ranks.against.words import named
from dpdemo.results.rankparts import ranks_label
from dpdemo.results.ranks import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator

FIT = 2e-3
_SAME = 1e-5


def unsynced(step: Step) -> list[Parameter]:
    """Return the parameters whose gradients differ between the ranks at the step."""
    return [
        each for each in step.plain if any(not close(each.each[0], other, _SAME) for other in each.each[1:])
    ]


def groups(step: Step) -> list[list[int]]:
    """Return the ranks that step with equal gradients, group by group."""
    found: list[list[int]] = []
    for rank in range(len(step.ranks)):
        for group in found:
            if all(close(each.each[group[0]], each.each[rank], _SAME) for each in step.plain):
                group.append(rank)
                break
        else:
            found.append([rank])
    return found


def trained_apart(step: Step) -> str:
    """Return the sentence about ranks that train models of their own, alone or in groups."""
    found = groups(step)
    if len(found) == len(step.ranks):
        return "each rank trains a model of its own"
    return f"each group of ranks ({'; '.join(map(ranks_label, found))}) trains a model of its own"


def find_partly(step: Step) -> Iterator[Mistake]:
    """Find parameters that get a gradient on some ranks only, and then differ."""
    partly = {name: having for name, having in step.partly().items() if name in step.drifted}
    if partly:
        having = next(iter(partly.values()))
        ranks = f"rank{'s' * (len(having) > 1)} {', '.join(map(str, having))}"
        yield Mistake(
            f"Only {ranks} of {len(step.ranks)} step with a gradient for {named([*partly])}; the parameters "
            "differ afterwards",
            step.at,
            "give all ranks the same gradients: a parameter without one is not changed",
        )


def find_changed(step: Step) -> Iterator[Mistake]:
    """Find gradients that are neither the ranks' own nor equal: something changed them on some ranks."""
    apart = [each for each in unsynced(step) if each.name in step.drifted]
    local = {each.name: _locals(step, step.names.index(each.name)) for each in apart}
    changed = [
        each.name
        for each in apart
        if len(local[each.name]) == len(each.each) and not all(map(_is_multiple, each.each, local[each.name]))
    ]
    if changed and len(changed) == len(apart):
        yield Mistake(
            f"The ranks step with different gradients for {named(changed)}, which are not what their passes "
            "made: they were averaged, and then changed or added to; the parameters differ afterwards",
            step.at,
            "change gradients on all ranks alike, and average them after the last backward pass",
        )


def _locals(step: Step, place: int) -> list[Vector]:
    """Return what the passes of each rank made of a parameter's gradient, before any averaging."""
    found = []
    for side in step.ranks:
        parts = [each.gradients[place] for each in side.detail.backward if place < len(each.gradients)]
        if parts and all(part is not None for part in parts):
            found.append(sum(vector(part) for part in parts if part is not None))
    return found


def find_unsynced(step: Step) -> Iterator[Mistake]:
    """Find gradients that each rank has for itself, although one process's would be their mean."""
    apart = unsynced(step)
    is_all = len(apart) == len(step.parameters)
    if not apart or (is_all and not step.is_wrapped):
        return
    if any(close(a, b, _SAME) for a, b in itertools.combinations(apart[0].each, 2)):
        return  # ranks train in groups
    mean = together(sum(each.each) / len(each.each) for each in apart)
    single = together(each.one for each in apart)
    if not close(mean, _projected(mean, single), max(FIT, step.tolerance())):
        return

    which = (
        "gradients of its own"
        if is_all
        else f"a gradient of its own for {named([each.name for each in apart])}"
    )
    yield Mistake(
        f"Each rank steps with {which}, never averaged over the ranks; one process's is their mean",
        step.at,
        "put these parameters under DistributedDataParallel, too, or average their gradients"
        if not is_all
        else "call the wrapped model, not its .module, and make the last backward pass outside of no_sync()",
    )


def find_different_parameters(step: Step) -> Iterator[Mistake]:
    """Find parameters that differ between ranks although their gradients are equal."""
    if different_parameters(step) & {each.name for each in step.plain} and not unsynced(step):
        since = "from the start" if step.number == 1 else f"before step {step.number}"
        yield Mistake(
            f"The parameters differ between ranks {since}, although gradients are averaged",
            step.at,
            "broadcast rank 0's parameters first, or give all ranks one seed",
        )


def different_parameters(step: Step) -> frozenset[str]:
    """Return the parameters that each rank has whole, and that differ between ranks before the step."""
    events = [side.event for side in step.ranks]
    return frozenset(
        events[0].names[place]
        for place, piece in enumerate(events[0].pieces)
        if piece < 0 and len({event.sums[place] for event in events if place < len(event.sums)}) > 1
    )


def averages_parameters(steps: list[Step]) -> bool:
    """Return whether parameters are equal on all ranks again after a step whose gradients were not."""
    first = {step.one.event.optimizer: step for step in reversed(steps) if unsynced(step)}
    later = [step for step in steps if step.number > first.get(step.one.event.optimizer, step).number]
    return any(len({side.event.sums for side in step.ranks}) == 1 for step in later)


def _is_multiple(target: Vector, direction: Vector) -> bool:
    return close(target, _projected(target, direction), FIT)


def _projected(target: Vector, direction: Vector) -> Vector:
    total = float(direction @ direction)
    return direction * (float(target @ direction) / total if total else 0.0)

"""The verdict: equal, different for named reasons, or not checked since nothing is sure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpdemo.ranks.against import factors, unsynced, weights
from dpdemo.ranks.against.compare import Step, rows_of
from dpdemo.ranks.against.mixing import find_mixing
from dpdemo.ranks.against.words import named
from dpdemo.results.against import Comparison
from dpdemo.results.ranks import Mistake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Find = Callable[[Step], Iterable[Mistake]]

_OF_RANKS: tuple[Find, ...] = (unsynced.find_unsynced, unsynced.find_different_parameters)
"""Those that hold whether one process got the same rows or not."""
_OF_GRADIENTS: tuple[Find, ...] = (
    weights.find_clipped_before,
    factors.find_factor,
    weights.find_weights,
    factors.find_partial_factors,
    weights.find_uneven_shards,
)
"""Those whose numbers prove that it did."""
_OF_GRAPHS: tuple[Find, ...] = (find_mixing,)


def causes(step: Step) -> list[Mistake]:
    """Return the mistakes that explain a step's difference; none if nothing is sure."""
    for find in _OF_RANKS:
        found = list(find(step))
        if found:
            return found
    if unsynced.unsynced(step) or rows_of(step.ranks) != rows_of([step.one]):
        return []
    for find in _OF_GRADIENTS:
        found = list(find(step))
        if found:
            return found
    if step.has_same_rows():
        for find in _OF_GRAPHS:
            found = list(find(step))
            if found:
                return found
    return []


def differs(step: Step) -> bool:
    """Return whether the ranks' gradients are not one process's."""
    return (
        not step.is_equal() or bool(unsynced.unsynced(step)) or any(unsynced.find_different_parameters(step))
    )


def _is_skipped(step: Step) -> bool:
    """Return whether a gradient scaler left the step out, on the ranks or on one process."""
    return any(side.event.is_skipped for side in (*step.ranks, step.one))


def reason_not_comparable(steps: Sequence[Step]) -> str:
    """Return why steps cannot be compared at all, or nothing."""
    for step in steps:
        names = {side.event.names for side in (*step.ranks, step.one)}
        if len(names) > 1:
            return "the optimizers of the ranks, or of one process, have other parameters"
        if len({side.event.is_skipped for side in step.ranks}) > 1:
            return f"a gradient scaler left out step {step.number} on some ranks only"
        if _is_skipped(step):
            continue
        if not step.parameters:
            return "no parameter of the optimizer got a gradient"
        if not math.isfinite(step.difference()):
            return f"gradients of step {step.number} are not finite"
        if step.one_sided():
            return f"{named(step.one_sided())} got a gradient on one side only"
    return ""


def reason_unsure(step: Step) -> str:
    """Return why the difference of a step is not called a mistake."""
    rows = rows_of(step.ranks), rows_of([step.one])
    if rows[0] != rows[1]:
        return (
            f"one process trained on {rows[1]} rows where the ranks trained on {rows[0]}: the program makes "
            "or cuts its rows in a way that cannot be repeated"
        )
    if not step.has_same_rows():
        return (
            "one process got other rows than the ranks: the program draws or changes them in a way that "
            "cannot be repeated"
        )
    if step.has_hook:
        return "a communication hook of DistributedDataParallel changes the gradients"
    if len(unsynced.unsynced(step)) == len(step.parameters) and not step.is_wrapped:
        return "each rank trains a model of its own"
    if unsynced.unsynced(step):
        return (
            "the ranks hold different gradients, and one process's is not their mean: each may train a part "
            "of the model"
        )
    worst = max(step.parameters, key=lambda each: each.apart())
    return (
        f"gradients of step {step.number} are {step.difference():.2g} apart (relative), most of all "
        f"{worst.name}, and no known cause fits: random numbers, or a rank's own state, may differ"
    )


def judged(steps: Sequence[Step], remarks: Sequence[str] = ()) -> Comparison:
    """Return the verdict on some steps; the causes are those of the first one that differs."""
    num = len(steps[0].ranks)
    reason = reason_not_comparable(steps)
    if reason:
        return Comparison("not checked", num, reason, remarks=tuple(remarks))
    compared = [step for step in steps if not _is_skipped(step)]
    if not compared:
        return Comparison(
            "not checked", num, "a gradient scaler left out all noted steps", remarks=tuple(remarks)
        )
    different = [step for step in compared if differs(step)]
    numbers = tuple(sorted({step.number for step in compared}))
    worst = max(compared, key=lambda step: step.difference())
    apart, tolerance = worst.difference(), worst.tolerance()
    if not different:
        return Comparison("equal", num, "", numbers, apart, tolerance, (), tuple(remarks))
    if unsynced.averages_parameters(compared):
        reason = "the ranks average parameters between some steps, not gradients"
        return Comparison("not checked", num, reason, remarks=tuple(remarks))
    found = causes(different[0])
    if not found:
        return Comparison("not checked", num, reason_unsure(different[0]), remarks=tuple(remarks))
    numbers = tuple(sorted({step.number for step in different}))
    return Comparison("different", num, "", numbers, apart, tolerance, tuple(found), tuple(remarks))

"""The verdict: equal, different for named reasons, or not checked since nothing is sure."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from dpdemo.ranks.against import factors, unsynced, weights
from dpdemo.ranks.against.compare import Step, rows_of, size
from dpdemo.ranks.against.mixing import find_function_of_mean, find_mixing
from dpdemo.ranks.against.words import named
from dpdemo.results.ranks import Comparison, Mistake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Find = Callable[[Step], Iterable[Mistake]]

_OF_RANKS: tuple[Find, ...] = (
    unsynced.find_partly,
    unsynced.find_changed,
    unsynced.find_unsynced,
    unsynced.find_different_parameters,
)
"""Those that hold whether one process got the same rows or not."""
_OF_GRADIENTS: tuple[Find, ...] = (
    weights.find_clipped_before,
    factors.find_factor,
    find_function_of_mean,
    weights.find_weights,
    factors.find_partial_factors,
    weights.find_uneven_shards,
)
"""Those whose numbers prove that it did."""
_NO_GRADIENT = "all gradients are zero, on the ranks and on one process"
_OWN_DIVISOR = (
    "the loss divides a sum by a fixed number, as many rows or elements as a rank has: one process would "
    "divide by those of all ranks"
)


def causes(step: Step) -> list[Mistake]:
    """Return the mistakes that explain a step's difference; none if nothing is sure."""
    finds = _OF_RANKS
    if not unsynced.unsynced(step) and step.has_same_calls():
        finds += _OF_GRADIENTS
        finds += (find_mixing,) if step.has_same_rows() else ()
    return next((found for find in finds if (found := list(find(step)))), [])


def differs(step: Step) -> bool:
    """Return whether the ranks' gradients are not one process's."""
    of_ranks = (unsynced.find_partly, unsynced.find_different_parameters)
    is_apart = bool(unsynced.unsynced(step)) or any(any(find(step)) for find in of_ranks)
    return is_apart or not step.is_equal() or weights.has_uneven_means(step)


def reason_not_comparable(steps: Sequence[Step]) -> str:
    """Return why steps cannot be compared at all, or nothing."""
    for step in steps:
        if reason := _other_parameters(step):
            return reason
        if len({side.event.is_skipped for side in step.data}) > 1:
            return f"a gradient scaler left out step {step.number} on some ranks only"
        if step.is_skipped:
            continue
        if not step.parameters:
            return "no parameter of the optimizer got a gradient"
        if not math.isfinite(step.difference()):
            return f"gradients of step {step.number} are not finite"
        if step.one_sided():
            return f"{named(step.one_sided())} got a gradient on one side only"
    return ""


def _other_parameters(step: Step) -> str:
    """Return how the optimizers' parameters differ, if they do."""
    *ranks, one = (side.event.names for side in (*step.ranks, step.one))
    if sum(map(len, ranks)) == len(one) > len(ranks[0]):
        return "each rank trains a part of the model, as a stage of a pipeline does"
    return (
        "the optimizers of the ranks, or of one process, have other parameters" if {*ranks} != {one} else ""
    )


def reason_unsure(step: Step) -> str:
    """Return why the difference of a step is not called a mistake."""
    rows, apart = (rows_of(step.data), rows_of([step.one])), unsynced.unsynced(step)
    in_groups = 1 < len(unsynced.groups(step)) < len(step.ranks)
    worst = max(step.parameters, key=lambda each: each.apart())
    calls = [list(side.event.rows[:6]) for side in (step.data[0], step.one)]
    has_calls = step.has_same_calls()
    reasons = {
        "one process trained on {1} rows where the ranks trained on {0}: the program makes or cuts its rows "
        "in a way that cannot be repeated".format(*rows): not has_calls and rows[0] != rows[1],
        f"the model's calls have {calls[0]} rows on a rank and {calls[1]} on one process: the program cuts "
        "its batches into other passes": not has_calls,
        f"the ranks have different parameters at step {step.number}: {unsynced.trained_apart(step)}": bool(
            unsynced.different_parameters(step)
        ),
        "one process got other rows than the ranks: the program draws or changes them in a way that "
        "cannot be repeated": not step.has_same_rows(),
        "a communication hook of DistributedDataParallel changes the gradients": step.has_hook,
        unsynced.trained_apart(step): len(apart) == len(step.parameters)
        and (not step.is_wrapped or in_groups),
        "the ranks hold different gradients, and one process's is not their mean: each may train a part of "
        "the model": bool(apart),
        f"gradients of step {step.number} are {step.difference():.2g} apart (relative), most of all "
        f"{worst.name}, and no known cause fits: random numbers, a rank's own state, or numbers that it "
        "computes of its rows without gradients (such as a mean that normalizes them) may differ": True,
    }
    return next(reason for reason, holds in reasons.items() if holds)


def judged(steps: Sequence[Step], remarks: Sequence[str] = ()) -> Comparison:
    """Return the verdict on some steps; the causes are those of each optimizer's first one that tells any."""
    num, reason = len(steps[0].ranks), reason_not_comparable(steps)
    compared = [] if reason else [_prepared(step, steps) for step in steps if not step.is_skipped]
    different = [step for step in compared if differs(step)]
    if not compared:
        reason = reason or "a gradient scaler left out all noted steps"
    elif unsynced.averages_parameters(compared):
        reason = "the ranks average parameters between some steps, not gradients"
    by_optimizer: dict[int, list[Step]] = {}
    for step in [] if reason else different:
        by_optimizer.setdefault(step.one.event.optimizer, []).append(step)
    found = {number: next(filter(None, map(causes, own)), []) for number, own in sorted(by_optimizer.items())}
    unsure = [reason_unsure(by_optimizer[number][0]) for number, mistakes in found.items() if not mistakes]
    mistakes = tuple(dict.fromkeys(each for several in found.values() for each in several))
    if reason or (unsure and not mistakes):
        return Comparison("not checked", num, reason or unsure[0], remarks=tuple(remarks))
    remarks = [*remarks, *(f"another optimizer's steps are not explained: {each}" for each in unsure)]
    worst = max(compared, key=lambda step: step.difference())
    if not any(size(vector) for step in compared for vector in (step.ranks_vector, step.one_vector)):
        remarks.append(_NO_GRADIENT)
    final = Comparison(
        "different" if different else "equal",
        num,
        "",
        tuple(sorted({step.number for step in different or compared})),
        worst.difference(),
        worst.tolerance(),
        mistakes,
        tuple(remarks),
    )
    return with_divisor(final) if any(step.scale != 1 for step in compared) else final


def with_divisor(found: Comparison) -> Comparison:
    """Add the remark that a fixed divisor counts as a mean."""
    return replace(found, remarks=(*found.remarks, _OWN_DIVISOR))


def _prepared(step: Step, steps: Sequence[Step]) -> Step:
    """Add to a step what the later steps of its optimizer tell, and what one process's gradients count."""
    own = [each for each in steps if each.one.event.optimizer == step.one.event.optimizer]
    later = [each for each in own if each.number > step.number]
    drifted = frozenset[str]().union(*map(unsynced.different_parameters, later))
    is_scaled = all(map(factors.has_own_divisor, own)) and not step.is_equal()
    return replace(step, drifted=drifted, scale=1 / len(step.data) if is_scaled else 1.0)

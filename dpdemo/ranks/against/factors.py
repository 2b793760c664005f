"""One factor between the gradients, of all parameters or of some, and the reason that the loss shows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpdemo.ranks.against.compare import Step, close, size
from dpdemo.ranks.against.library import where_gathered, where_scaled
from dpdemo.ranks.against.unsynced import FIT
from dpdemo.ranks.against.weights import Weights
from dpdemo.ranks.against.words import NEAR, backward_of, line_of, named, near, percent, times
from dpdemo.results.ranks import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpdemo.ranks.against.store import Backward, Shape

Words = tuple[str, str, str]
"""The reason, the remedy and the line."""
_MANY = 32
_SUM = "take a mean, or multiply the sum by the number of ranks"
_GATHERED = (
    "each rank's loss has the rows of all ranks, but gradients reach only the rank's own, and are averaged"
)
_GATHER = "gather with gradients (torch.distributed.nn.functional.all_gather), or multiply by the ranks"
_SCALED = "multiply by the number of ranks only a sum that is divided by all ranks' number of elements"


def find_factor(step: Step) -> Iterator[Mistake]:
    """Find one factor between all gradients."""
    alpha = float(step.ranks_vector @ step.one_vector) / max(float(step.one_vector @ step.one_vector), 1e-30)
    uncertain = max(NEAR, 2 * step.noise.get("", 0.0))
    if abs(alpha - 1) <= uncertain or alpha <= 0:
        return
    if len(step.one_vector) < _MANY and not step.has_same_rows():
        return  # so few numbers prove nothing
    if not close(step.ranks_vector, alpha * step.one_vector, max(FIT, step.tolerance())):
        return
    fit = Weights.of(step)
    if fit is not None and fit.explains() and not fit.has_one_factor():
        return  # ranks have factors of their own
    found = _of_accumulation(step, alpha) or _of_loss(step, alpha) or _of_averaging(step, alpha)
    yield Mistake(
        f"The gradients of all parameters are {times(alpha)} one process's: {found[0]}", found[2], found[1]
    )


def _losses(step: Step) -> tuple[Backward, Backward] | None:
    """Return the first pass of a rank and of one process, if their losses have one reduction each."""
    mine, single = step.data[0].detail.backward, step.one.detail.backward
    if mine and single and len(mine[0].elements) == len(single[0].elements) == 1 and mine[0].elements[0]:
        return mine[0], single[0]
    return None


def has_own_divisor(step: Step) -> bool:
    """Return whether all terms of the loss divide a sum by a fixed number, as many rows as a rank has."""
    passes = [side.detail.backward for side in (*step.data, step.one)]
    if {len(each) > 0 for each in passes} != {True} or len({len(each) for each in passes}) > 1:
        return False
    firsts = [each[0] for each in passes]
    if len({len(each.elements) for each in firsts}) > 1 or not firsts[0].elements:
        return False
    return all(is_own_divisor(step, firsts, place) for place in range(len(firsts[0].elements)))


def is_own_divisor(step: Step, passes: Sequence[Backward], place: int) -> bool:
    """Return whether a term divides a sum by a fixed number, as many rows or elements as a rank has."""
    divisor = passes[0].divisors[place]
    for each in passes:
        if len(each.over) <= place or (each.averaged[place], each.divisors[place]) != (1.0, divisor):
            return False
    *mine, single = (math.prod(each.over[place]) for each in passes)
    if single != sum(mine):  # the ranks have gathered their rows
        return False
    if divisor == 1:
        return {call[0] if call else 0 for side in step.data for call in side.detail.calls} == {1}
    return all(divisor in _sizes(each.over[place]) for each in passes[:-1])


def _sizes(shape: Shape) -> set[int]:
    """Return the numbers of rows or elements that a term of a loss may have."""
    return {math.prod(shape[: dim + 1]) for dim in range(len(shape))}


def _of_accumulation(step: Step, alpha: float) -> Words | None:
    num = len(step.data)
    micro, single = len(step.data[0].detail.backward), len(step.one.detail.backward)
    if single != num * micro or not near(alpha, 1 / num):
        return None
    why = f"a rank makes {micro} of the {single} backward passes of a step, but divides its loss by {single}"
    return (
        why,
        "divide by the rank's own number of passes; the average over ranks does the rest",
        line_of(step),
    )


def _of_loss(step: Step, alpha: float) -> Words | None:
    num, at, losses = len(step.data), line_of(step), _losses(step)
    if losses is None or not near(alpha, losses[1].elements[0] / (num * losses[0].elements[0])):
        return None
    mine, single = (each.elements[0] for each in losses)
    has_all_rows = losses[0].over == losses[1].over and max(map(math.prod, losses[0].over), default=1) > 1
    if near(mine, single) and has_all_rows:
        return _GATHERED, _GATHER, at
    if near(mine, single):
        return (*_of_sum(losses[0].averaged[0], losses[0].divisors[0], num), at)
    micro = len(step.data[0].detail.backward)
    is_micro = micro > 1 and near(max(alpha, 1 / alpha), micro)
    accumulated = f"; {micro} backward passes are accumulated for a step" if is_micro else ""
    why = (
        f"the loss divides by {percent(mine)} on a rank and by {percent(single)} on one process{accumulated}"
    )
    return why, "divide by what a rank has, and by the accumulated passes; averaging does the rest", at


def _of_sum(averaged: float, divisor: float, num: int) -> tuple[str, str]:
    """Return the reason and the remedy of a loss that divides by as much on a rank as on one process."""
    if averaged > 1:
        why = f"the loss is a mean, divided by {percent(divisor)}; the average over ranks divides once more"
        return why, "do not divide a mean by the number of ranks"
    if divisor != 1:
        why = f"the loss is a sum divided by {percent(divisor)}, as on one process, and then averaged"
        return why, "multiply the loss by the number of ranks, or divide by what the rank itself has"
    return f"the loss is a sum over a rank's rows, and sums are averaged over {num} ranks", _SUM


def _of_averaging(step: Step, alpha: float) -> Words:
    num, at, found = len(step.data), line_of(step), backward_of(step)
    if near(alpha, num) and _is_averaged(step):
        scaled = where_scaled(found.lines) if found else ""
        if not scaled:
            return f"a mean is multiplied by the number of ranks, {num}, and then averaged", _SCALED, at
        return f"the loss is a mean, and {scaled} multiplies it by the number of ranks", _SCALED, at
    if near(alpha, num):
        why = f"gradients are summed over {num} ranks and not divided by their number"
        return why, "divide by the number of ranks, or reduce with ReduceOp.AVG", step.at
    losses = _losses(step)
    if near(alpha, 1 / num) and losses is not None and losses[0].averaged[0] > 1:
        return (
            "gradients are divided by the number of ranks once too often",
            "average gradients once",
            step.at,
        )
    if near(alpha, 1 / num):
        why = "the loss is a sum over a rank's rows, or gradients are divided by the ranks once too often"
        return why, "take a mean over the rank's rows, and average gradients once", at
    why = "the program scales losses or gradients by a number of the ranks' own"
    return why, "look at what the loss is divided by", at


def _is_averaged(step: Step) -> bool:
    """Return whether the ranks' gradients at the step are the mean of what their passes made."""
    fit = Weights.of(step)
    return fit is not None and fit.does_fit and near(float(fit.does.sum()), len(fit.owners) / len(step.data))


def find_partial_factors(step: Step) -> Iterator[Mistake]:
    """Find a factor that some parameters have and others have not."""
    num, groups = len(step.data), dict[float, list[str]]()
    total = size(step.one_vector)
    for each in step.parameters:
        if size(each.one) <= 1e-6 * total:
            continue
        alpha = float(each.ranks @ each.one) / max(float(each.one @ each.one), 1e-30)
        if not close(each.ranks, alpha * each.one, max(FIT, step.tolerance())):
            return
        known = next((factor for factor in groups if near(alpha, factor)), alpha)
        groups.setdefault(known, []).append(each.name)
    if len(groups) != 2:
        return
    odd = next((factor for factor in groups if near(factor, num) or near(factor, 1 / num)), None)
    other = next((factor for factor in groups if factor != odd), 0.0)
    if odd is None or not (near(other, 1.0) or near(other, num) or near(other, 1 / num)):
        return
    rest = "equal" if near(other, 1.0) else f"{times(other)} it"
    found = backward_of(step)
    scaled = where_scaled(found.lines) if found else ""
    gathered = where_gathered(found.lines) if found and not scaled else ""
    why = f": {scaled} multiplies the loss by the number of ranks" if scaled else ""
    why = f": {gathered} gathers rows without their gradients" if gathered else why
    yield Mistake(
        f"The gradients of {named(groups[odd])} are {times(odd)} one process's, and those of "
        f"{named(groups[other])} are {rest}{why}",
        line_of(step),
        "a part of the loss counts once on each rank, or is averaged although the ranks share it: give all "
        "parts one factor (gather with gradients)",
    )

"""One factor between the gradients, of all parameters or of some, and the reason that the loss shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpdemo.ranks.against.compare import Step, close, size
from dpdemo.ranks.against.library import where_scaled
from dpdemo.ranks.against.unsynced import FIT
from dpdemo.ranks.against.weights import Weights
from dpdemo.ranks.against.words import NEAR, backward_of, line_of, named, near, percent, times
from dpdemo.results.ranks import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator

Words = tuple[str, str, str]
"""The reason, the remedy and the line."""
_MANY = 32
_SUM = "take a mean, or multiply the sum by the number of ranks"
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


def _elements(step: Step) -> tuple[float, float] | None:
    """Return over how many elements the loss averages, on a rank and on one process."""
    mine, single = step.ranks[0].detail.backward, step.one.detail.backward
    if mine and single and len(mine[0].elements) == len(single[0].elements) == 1 and mine[0].elements[0]:
        return mine[0].elements[0], single[0].elements[0]
    return None


def _of_accumulation(step: Step, alpha: float) -> Words | None:
    num = len(step.ranks)
    micro, single = len(step.ranks[0].detail.backward), len(step.one.detail.backward)
    if single != num * micro or not near(alpha, 1 / num):
        return None
    why = f"a rank makes {micro} of the {single} backward passes of a step, but divides its loss by {single}"
    return (
        why,
        "divide by the rank's own number of passes; the average over ranks does the rest",
        line_of(step),
    )


def _of_loss(step: Step, alpha: float) -> Words | None:
    num, at, elements = len(step.ranks), line_of(step), _elements(step)
    ratio = elements[1] / (num * elements[0]) if elements else 0.0
    if elements is None or not near(alpha, ratio):
        return None
    mine, single = elements
    if near(mine, single):
        return f"the loss is a sum over a rank's rows, and sums are averaged over {num} ranks", _SUM, at
    micro = len(step.ranks[0].detail.backward)
    is_micro = micro > 1 and near(max(alpha, 1 / alpha), micro)
    accumulated = f"; {micro} backward passes are accumulated for a step" if is_micro else ""
    why = (
        f"the loss divides by {percent(mine)} on a rank and by {percent(single)} on one process{accumulated}"
    )
    return why, "divide by what a rank has, and by the accumulated passes; averaging does the rest", at


def _of_averaging(step: Step, alpha: float) -> Words:
    num, at, found = len(step.ranks), line_of(step), backward_of(step)
    if near(alpha, num) and _is_averaged(step):
        scaled = where_scaled(found.lines) if found else None
        if scaled is None:
            return f"a mean is multiplied by the number of ranks, {num}, and then averaged", _SCALED, at
        place, is_librarys = scaled
        whose = " (a library's line, not your program's)" if is_librarys else ""
        return f"the loss is a mean, and {place}{whose} multiplies it by the number of ranks", _SCALED, at
    if near(alpha, num):
        why = f"gradients are summed over {num} ranks and not divided by their number"
        return why, "divide by the number of ranks, or reduce with ReduceOp.AVG", step.at
    if near(alpha, 1 / num):
        why = "the loss is a sum over a rank's rows, or gradients are divided by the ranks once too often"
        return why, "take a mean over the rank's rows, and average gradients once", at
    why = "the program scales losses or gradients by a number of the ranks' own"
    return why, "look at what the loss is divided by", at


def _is_averaged(step: Step) -> bool:
    """Return whether the ranks' gradients at the step are the mean of what their passes made."""
    fit = Weights.of(step)
    return fit is not None and fit.does_fit and near(float(fit.does.sum()), len(fit.owners) / len(step.ranks))


def find_partial_factors(step: Step) -> Iterator[Mistake]:
    """Find a factor that some parameters have and others have not."""
    num, groups = len(step.ranks), dict[float, list[str]]()
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
    yield Mistake(
        f"The gradients of {named(groups[odd])} are {times(odd)} one process's, and those of "
        f"{named(groups[other])} are {rest}",
        line_of(step),
        "a part of the loss counts once on each rank, or is averaged although the ranks share it: give all "
        "parts one factor (gather with gradients)",
    )

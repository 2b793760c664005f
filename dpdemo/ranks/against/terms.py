"""Terms of a loss with different reductions: the factor that each one's gradient has on the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpdemo.ranks.against.factors import is_own_divisor
from dpdemo.ranks.against.words import near, percent, times
from dpdemo.results.ranks import Mistake

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpdemo.ranks.against.compare import Step
    from dpdemo.ranks.against.store import Backward

Factors = dict[str, tuple[float, ...]]
"""By the line of a backward pass: what a term's gradient is on the ranks, by that of one process."""


def uneven_terms(steps: Sequence[Step]) -> Factors:
    """Return the terms' factors of the passes whose terms do not all have the same one."""
    found: Factors = {}
    for step in steps:
        for passes in zip(*(side.detail.backward for side in (*step.data, step.one)), strict=False):
            factors = _factors(passes)
            if len(set(factors)) > 1 and found.setdefault(passes[-1].at, factors) != factors:
                return {}
    return found


def _factors(passes: Sequence[Backward]) -> tuple[float, ...]:
    *ranks, one = passes
    first = ranks[0]
    if {(each.averaged, each.divisors) for each in ranks} != {(first.averaged, first.divisors)}:
        return ()
    if len(first.elements) != len(one.elements) or not all(first.elements):
        return ()
    return tuple(
        1.0 if mine == whole else round(single / (len(ranks) * own), 6)
        for mine, whole, own, single in zip(first.over, one.over, first.elements, one.elements, strict=True)
    )


def mistakes_of_terms(steps: Sequence[Step], factors: Factors) -> tuple[Mistake, ...]:
    """Name the terms whose weight differs from one process's; dividing by a rank's size is not a mistake."""
    found = []
    for step in steps:
        for passes in zip(*(side.detail.backward for side in (*step.data, step.one)), strict=False):
            mine, single = passes[0], passes[-1]
            found += [
                Mistake(
                    f"One term of the loss, over {list(mine.over[place])}, "
                    f"{_divided(mine.elements[place], single.elements[place])}: its gradients are "
                    f"{times(factor)} one process's, those of the other terms are not",
                    mine.at,
                    "give all terms one reduction: a mean, or a sum multiplied by the number of ranks",
                )
                for place, factor in enumerate(factors.get(single.at, ()))
                if factor != 1 and not is_own_divisor(step, passes, place)
            ]
    return tuple(dict.fromkeys(found))


def _divided(own: float, whole: float) -> str:
    if near(own, 1) and near(whole, 1):
        return "is a sum over a rank's rows"
    return f"divides by {percent(own)} on a rank and by {percent(whole)} on one process"

"""Terms of a loss with different reductions: the factors that each one's gradient has on the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpdemo.ranks.against.factors import is_own_divisor
from dpdemo.ranks.against.weights import EVEN
from dpdemo.ranks.against.words import near, percent, times
from dpdemo.results.ranks import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dpdemo.ranks.against.compare import Step
    from dpdemo.ranks.against.store import Backward

_EVENLY = "means over different numbers of elements are averaged with equal weights"
Factors = dict[str, tuple[tuple[tuple[int, float], ...], ...]]
"""By the number of a backward pass, of each term and rank: its rows, and the factor of their gradient."""


def uneven_terms(steps: Sequence[Step], *, by_rank: bool = False) -> Factors:
    """Return the factors of the passes whose terms do not all have one, or whose ranks do not: `by_rank`."""
    found: Factors = {}
    for step in steps:
        for passes in zip(*(side.detail.backward for side in (*step.data, step.one)), strict=False):
            terms = _factors(passes)
            is_by_rank = any(len(_only(term)) > 1 for term in terms)
            if len(_only(each for term in terms for each in term)) > 1 and by_rank >= is_by_rank:
                found[str(passes[-1].number)] = terms
    return found


def _only(parts: Iterable[tuple[int, float]]) -> set[float]:
    return {factor for _, factor in parts}


def _factors(passes: Sequence[Backward]) -> tuple[tuple[tuple[int, float], ...], ...]:
    *ranks, one = passes
    if len({len(each.elements) for each in passes}) > 1 or not all(all(each.elements) for each in ranks):
        return ()
    return tuple(
        tuple(
            (
                mine.over[place][0] if mine.over[place] else 1,
                1.0 if mine.over[place] == whole else round(single / (len(ranks) * mine.elements[place]), 6),
            )
            for mine in ranks
        )
        for place, (whole, single) in enumerate(zip(one.over, one.elements, strict=True))
    )


def mistakes_of_terms(steps: Sequence[Step], factors: Factors) -> tuple[Mistake, ...]:
    """Name the terms whose weight differs from one process's; dividing by a rank's size is not a mistake."""
    found: dict[tuple[str, int], Mistake] = {}
    for step in steps:
        for passes in zip(*(side.detail.backward for side in (*step.data, step.one)), strict=False):
            for place, term in enumerate(factors.get(str(passes[-1].number), ())):
                if _only(term) != {1.0} and not is_own_divisor(step, passes, place):
                    key = passes[0].at, place
                    found.setdefault(key, Mistake(_text(passes, place, _only(term)), key[0], _advice(term)))
    return tuple(found.values())


def _text(passes: Sequence[Backward], place: int, factors: set[float]) -> str:
    mine, single = passes[0], passes[-1]
    term = f"One term of the loss, over {list(mine.over[place])},"
    if len(factors) > 1:
        counts = " and ".join(percent(each.elements[place]) for each in passes[:-1])
        whole = percent(single.elements[place])
        return f"{term} divides by {counts} on the ranks and by {whole} on one process: {_EVENLY}"
    return (
        f"{term} {_divided(mine.elements[place], single.elements[place])}: its gradients are "
        f"{times(*factors)} one process's, those of the other terms are not"
    )


def _advice(term: Sequence[tuple[int, float]]) -> str:
    return EVEN if len(_only(term)) > 1 else "give all terms one reduction: a mean, or a sum times the ranks"


def _divided(own: float, whole: float) -> str:
    if near(own, 1) and near(whole, 1):
        return "is a sum over a rank's rows"
    return f"divides by {percent(own)} on a rank and by {percent(whole)} on one process"

"""All ranks drew the same samples.

Each rank trains on the whole data set: an epoch is as many epochs as there are ranks.

Seen in: the indices of each DataLoader, by data set, unless each rank takes its share of a batch

Instead: give the DataLoader a DistributedSampler, or each rank a seed of its own
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpdemo.ranks.events import Loss, Rows
from dpdemo.ranks.mistakes.evidence import common_epochs
from dpdemo.ranks.mistakes.registry import mistake
from dpdemo.results.ranks import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpdemo.ranks.events import Epoch
    from dpdemo.ranks.mistakes.evidence import Evidence, Noted

_ALMOST = 0.1


@mistake("same-samples")
def find(evidence: Evidence) -> Iterator[Mistake]:
    """Compare the samples of all ranks, loader by loader."""
    for ranks in evidence.crews(shared=True).values():
        told = set()
        for epochs in common_epochs(ranks):
            first = epochs[0]
            same_data = len({epoch.dataset for epoch in epochs}) == 1
            if first.at in told or not same_data or not _same_samples(epochs) or _are_cut(ranks):
                continue
            told.add(first.at)
            count = len(set(first.drawn)) if first.drawn is not None else first.count
            which = f"all {count} samples" if count == first.length else f"the same {count} samples"
            yield Mistake(
                f"Each of {len(epochs)} ranks drew {which}: an epoch is {len(epochs)} epochs",
                first.at,
                _remedy(first.sampler),
            )


def _remedy(sampler: str) -> str:
    """Advise how each rank gets samples of its own, by the class of the sampler."""
    if sampler in {"SequentialSampler", "RandomSampler"}:
        return "give the DataLoader a DistributedSampler"
    if sampler == "DistributedSampler":
        return "give the DistributedSampler the number of each rank: rank=dist.get_rank()"
    return (
        f"{sampler} draws alike on all ranks: seed its generator by rank, or let each rank keep its share of "
        "what it draws"
    )


def _same_samples(epochs: Sequence[Epoch]) -> bool:
    if len({(epoch.sum, epoch.count) for epoch in epochs}) == 1:
        return True
    drawn = [epoch.drawn for epoch in epochs if epoch.is_complete and epoch.drawn is not None]
    return len(drawn) == len(epochs) and len(set(map(frozenset, drawn))) == 1


def _are_cut(ranks: Sequence[Noted]) -> bool:
    """Return whether each rank takes its share of most batches: a tensor has N times the elements used."""
    used: list[tuple[float, tuple[int, ...]]] = [(rows.number, rows.drawn) for rows in ranks[0][Rows]]
    used += [(loss.count, loss.drawn) for loss in ranks[0][Loss]]
    cut = sum(
        any(_is_close(number * len(ranks), size) for size in drawn)
        and not any(_is_close(number, size) for size in drawn)
        for number, drawn in used
    )
    whole = sum(any(_is_close(number, size) for size in drawn) for number, drawn in used)
    return cut > whole


def _is_close(number: float, other: float) -> bool:
    return abs(number - other) <= _ALMOST * other

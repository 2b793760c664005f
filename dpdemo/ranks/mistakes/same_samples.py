"""All ranks drew the same samples.

Each rank trains on the whole data set: an epoch is as many epochs as there are ranks.

Seen in: the samples of each loader, by index or else by content, unless each rank takes its share of a batch

Instead: give the DataLoader a DistributedSampler, or each rank a part of the stream
"""

from collections.abc import Sequence

from dpdemo.ranks.events import Loss, Rows
from dpdemo.ranks.mistakes.evidence import RankEvents, trained_epochs
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake
from dpdemo.ranks.samples import Together

_ALMOST = 0.1


@mistake("same-samples")
def find(evidence: Evidence) -> Found:
    """Compare the samples of all ranks, loader by loader."""
    for ranks in evidence.crews(shared=True).values():
        told = set()
        for epoch in trained_epochs(ranks):
            at = epoch.first.at
            if at in told or not _same_samples(epoch) or _are_cut(ranks):
                continue
            told.add(at)
            count = len(epoch.times) or epoch.first.count
            noun = "samples" if epoch.by_index else "rows"
            which = f"all {count} {noun}" if count == epoch.length else f"the same {count} {noun}"
            number = len(epoch.epochs)
            yield Mistake(
                f"Each of {number} ranks drew {which}: an epoch is {number} epochs", at, _remedy(epoch)
            )


def _remedy(epoch: Together) -> str:
    """Advise how each rank gets samples of its own, by the class of the sampler."""
    if not epoch.by_index:
        return "give each rank its own part of the stream: every n-th row, or files of its own"
    names = [name for name in epoch.first.samplers if name not in _ORDERS]
    sampler = names[-1] if names else epoch.first.sampler
    if sampler in _ORDERS:
        return "give the DataLoader a DistributedSampler"
    if sampler == "DistributedSampler":
        return "give the DistributedSampler the number of each rank: rank=dist.get_rank()"
    return (
        f"{sampler} draws alike on all ranks: seed its generator by rank, or let each rank keep its share of "
        "what it draws"
    )


_ORDERS = {"SequentialSampler", "RandomSampler", "BatchSampler"}
"""Samplers that the DataLoader makes itself, StatefulDataLoader's among them."""


def _same_samples(epoch: Together) -> bool:
    """Return whether the ranks drew the same samples, and trained on the same ones as far as is known."""
    if epoch.are_own or (not epoch.by_index and epoch.is_listed and len(epoch.times) < 2):
        return False
    if epoch.first.repeats and epoch.first.splitter:
        return False
    trained = epoch.trained
    if trained is not None and any(trained) and len(set(map(frozenset, trained))) > 1:
        return False
    if len({(each.sum, each.count) for each in epoch.epochs}) == 1:
        return True
    return epoch.is_complete and epoch.is_listed and len(set(map(frozenset, epoch.drawn))) == 1


def _are_cut(ranks: Sequence[RankEvents]) -> bool:
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

"""Ranks drew unequal numbers of batches.

Steps of different epochs meet in one average, or a rank waits for others that are done.

Seen in: the batches of a whole epoch that were trained on, without `join`

Instead: a sampler that pads or drops, or `with model.join():` around the loop
"""

from dpdemo.ranks.mistakes.evidence import trained_epochs
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake


@mistake("uneven-batches")
def find(evidence: Evidence) -> Found:
    """Compare the numbers of batches of each epoch."""
    for team in evidence.wrapped:
        numbers, told = team.ranks, set()
        for epoch in trained_epochs([evidence.ranks[rank] for rank in numbers]):
            first = epoch.first
            counts = [len(each.sizes) for each in epoch.epochs]
            is_known = epoch.is_complete and all(each.trained == each.count for each in epoch.epochs)
            is_joined = any(each.is_joined for each in epoch.epochs)
            if first.at in told or not is_known or is_joined or len(set(counts)) == 1 or not min(counts):
                continue
            told.add(first.at)
            most, least = counts.index(max(counts)), counts.index(min(counts))
            yield Mistake(
                f"Epoch {first.number} had {counts[most]} batches on rank {numbers[most]} "
                f"and {counts[least]} on rank {numbers[least]}",
                first.at,
                "pad or drop, so that all ranks make as many steps, or use `with model.join():`",
            )

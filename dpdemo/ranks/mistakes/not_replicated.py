"""A tensor that is declared to be the same on all ranks differs.

Tensor parallelism splits the layers, not the rows: all ranks of its mesh have to get the same rows.

Seen in: the tensors that became DTensors with `Replicate()`, such as the inputs of these layers

Instead: the same rows for all ranks of a tensor-parallel group; shards for the data-parallel ranks alone
"""

from collections.abc import Sequence

from dpdemo.ranks.events import Replicated
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake

_CLOSE = 1e-3


@mistake("not-replicated")
def find(evidence: Evidence) -> Found:
    """Compare such tensors, line by line."""
    told = set()
    keyed = {rank: {(event.at, event.number): event for event in noted[Replicated]} for rank, noted in
             evidence.ranks.items()}  # fmt: skip
    for mine in keyed.values():
        for (at, number), event in mine.items():
            row = [keyed[rank].get((at, number)) for rank in event.ranks if rank in keyed]
            known = [each for each in row if each is not None]
            if at in told or len(known) < len(event.ranks) or not _differ(known):
                continue
            told.add(at)
            yield Mistake(
                f"A tensor that is declared the same on ranks {', '.join(map(str, event.ranks))} differs",
                at,
                "give all ranks of this mesh the same rows: DistributedSampler(num_replicas, rank) of the "
                "data-parallel mesh alone, one seed for what they draw; or DTensor.from_local with Shard(0)",
            )


def _differ(row: Sequence[Replicated]) -> bool:
    """Return whether contents differ by more than rounding."""
    if len({event.sum for event in row}) == 1:
        return False
    return any(
        max(numbers) - min(numbers) > _CLOSE * max(1e-6, *map(abs, numbers))
        for numbers in zip(*(event.values for event in row), strict=False)
    )

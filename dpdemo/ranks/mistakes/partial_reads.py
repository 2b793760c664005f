"""A number was read of a DTensor that is yet to be reduced.

`x.sum()` of a sharded DTensor is a pending sum: `item()`, `float()` and `if` read the rank's own part.

Seen in: the placements of the DTensor, and the number that each rank read

Instead: `x.sum().full_tensor().item()`
"""

from dpdemo.ranks.events import Read
from dpdemo.ranks.mistakes.evidence import differing_reads
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake


@mistake("partial-reads", when_stopped=True)
def find(evidence: Evidence) -> Found:
    """Name each line whose numbers differ between ranks."""
    ranks = list(evidence.ranks)
    reads = [[read for read in evidence.ranks[rank][Read] if read.is_partial] for rank in ranks]
    told = set()
    for read in reversed(differing_reads(reads)):
        if read.at in told:
            continue
        told.add(read.at)
        values = [
            next(each for each in mine if (each.at, each.number) == (read.at, read.number)) for mine in reads
        ]
        read_by = ", ".join(
            f"{each.value:.4g} on rank {rank}" for each, rank in zip(values, ranks, strict=True)
        )
        yield Mistake(
            f"A number was read of a DTensor whose reduction is pending: the rank's own part, {read_by}",
            read.at,
            "call .full_tensor() first: x.sum().full_tensor().item(), x.norm().full_tensor().item()",
        )

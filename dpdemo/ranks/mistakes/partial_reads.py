"""A number was read of a DTensor that is yet to be reduced.

`x.sum()` of a sharded DTensor is a pending sum: `item()`, `float()` and `if` read the rank's own part.

Seen in: the placements of the DTensor, and the number that each rank read

Instead: `x.sum().full_tensor().item()`
"""

from dpdemo.ranks.events import Read
from dpdemo.ranks.mistakes.evidence import differing_reads, read_by_rank
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake


@mistake("partial-reads", when_stopped=True)
def find(evidence: Evidence) -> Found:
    """Name each line whose numbers differ between ranks."""
    ranks = list(evidence.ranks)
    reads = [[read for read in evidence.ranks[rank][Read] if read.is_partial] for rank in ranks]
    told = set()
    for row in reversed(differing_reads(reads)):
        at = row[0].at
        if at in told:
            continue
        told.add(at)
        yield Mistake(
            "A number was read of a DTensor whose reduction is pending: the rank's own part, "
            f"{read_by_rank(ranks, row)}",
            at,
            "call .full_tensor() first: x.sum().full_tensor().item(), x.norm().full_tensor().item()",
        )

"""A number was read of a DTensor that is yet to be reduced.

`x.sum()` of a sharded DTensor is a pending sum: `item()`, `float()` and `if` read the rank's own part.

Seen in: the placements of the DTensor, and the number that each rank read

Instead: `x.sum().full_tensor().item()`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpdemo.ranks.events import Read
from dpdemo.ranks.mistakes.evidence import by_rank, differing_reads
from dpdemo.ranks.mistakes.registry import mistake
from dpdemo.results.ranks import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpdemo.ranks.mistakes.evidence import Evidence


@mistake("partial-reads", when_stopped=True)
def find(evidence: Evidence) -> Iterator[Mistake]:
    """Name each line whose numbers differ between ranks."""
    ranks = list(evidence.ranks)
    reads = [[read for read in evidence.ranks[rank][Read] if read.is_partial] for rank in ranks]
    told = set()
    for read in reversed(differing_reads(reads)):
        if read.at in told:
            continue
        told.add(read.at)
        yield Mistake(
            "A number was read of a DTensor whose reduction is pending: the rank's own part, "
            f"{by_rank(read, reads, ranks)}",
            read.at,
            "call .full_tensor() first: x.sum().full_tensor().item(), x.norm().full_tensor().item()",
        )

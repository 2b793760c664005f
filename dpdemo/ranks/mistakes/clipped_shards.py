"""Each rank clipped its shards by a norm of its own.

`torch.nn.utils.clip_grad_norm_` sees the rank's part of the gradients under FullyShardedDataParallel.

Seen in: the norms that it returned on each rank

Instead: `model.clip_grad_norm_(max_norm)` of FullyShardedDataParallel
"""

from dpdemo.ranks.events import Clipped
from dpdemo.ranks.mistakes.evidence import by_rank, rows_of
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake

_CLOSE = 1.001


@mistake("clipped-shards")
def find(evidence: Evidence) -> Found:
    """Compare the norms of each call."""
    for ranks, noted in evidence.crews().items():
        told = set()
        for row in rows_of([mine[Clipped] for mine in noted]):
            at, norms = row[0].at, [event.norm for event in row]
            if at in told or max(norms) <= _CLOSE * min(norms):
                continue
            told.add(at)
            yield Mistake(
                f"Gradients are clipped by the norm of each rank's own shards: {by_rank(ranks, norms)}",
                at,
                "call model.clip_grad_norm_(max_norm) of FullyShardedDataParallel, which reduces the norm",
            )

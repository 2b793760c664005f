"""Each rank clipped its shards by a norm of its own.

`torch.nn.utils.clip_grad_norm_` sees the rank's part of the gradients under FullyShardedDataParallel.

Seen in: the norms that it returned on each rank

Instead: `model.clip_grad_norm_(max_norm)` of FullyShardedDataParallel
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpdemo.ranks.events import Clipped
from dpdemo.ranks.mistakes.evidence import on_ranks
from dpdemo.ranks.mistakes.registry import mistake
from dpdemo.results.ranks import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpdemo.ranks.mistakes.evidence import Evidence

_CLOSE = 1.001


@mistake("clipped-shards")
def find(evidence: Evidence) -> Iterator[Mistake]:
    """Compare the norms of each call."""
    for ranks, noted in evidence.crews().items():
        norms = [{(event.at, event.number): event.norm for event in mine[Clipped]} for mine in noted]
        told = set()
        for at, number in norms[0]:
            row = [mine[at, number] for mine in norms if (at, number) in mine]
            if at in told or len(row) < len(ranks) or max(row) <= _CLOSE * min(row):
                continue
            told.add(at)
            yield Mistake(
                f"Gradients are clipped by the norm of each rank's own shards: {on_ranks(row, ranks)}",
                at,
                "call model.clip_grad_norm_(max_norm) of FullyShardedDataParallel, which reduces the norm",
            )

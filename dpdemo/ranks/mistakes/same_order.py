"""`set_epoch` was not called.

A DistributedSampler shuffles by its seed and the number of the epoch; without `set_epoch` each epoch has the
order of the first.

Seen in: the order of two epochs of a shuffling sampler

Instead: call `sampler.set_epoch(epoch)` before each epoch
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpdemo.ranks.mistakes.evidence import common_epochs
from dpdemo.ranks.mistakes.registry import mistake
from dpdemo.results.ranks import Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpdemo.ranks.events import Epoch
    from dpdemo.ranks.mistakes.evidence import Evidence


@mistake("same-order")
def find(evidence: Evidence) -> Iterator[Mistake]:
    """Compare each epoch with the one before it."""
    for ranks in evidence.crews().values():
        before: dict[str, list[Epoch]] = {}
        told = set()
        for epochs in common_epochs(ranks):
            at = epochs[0].at
            last = before.get(at)
            before[at] = epochs
            if last is None or at in told or not all(epoch.is_shuffled for epoch in epochs):
                continue
            if all(_order(old) == _order(new) for old, new in zip(last, epochs, strict=True)):
                told.add(at)
                yield Mistake(
                    f"Epochs {last[0].number} and {epochs[0].number} drew the same order on every rank",
                    at,
                    "call sampler.set_epoch(epoch) before each epoch",
                )


def _order(epoch: Epoch) -> tuple[int | None, ...]:
    return epoch.sum, epoch.count, epoch.set_epoch

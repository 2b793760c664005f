"""Epochs repeat one order: `set_epoch` was not called, or did not reach the workers.

A DistributedSampler shuffles by its seed and the number of the epoch; without `set_epoch` each epoch has the
order of the first. Persistent workers keep the copy of a streamed data set that they began with.

Seen in: the order of two epochs of a shuffling sampler, or of a stream whose data set changed in between

Instead: call `sampler.set_epoch(epoch)` before each epoch; workers share it or end with the epoch
"""

from dpdemo.ranks.events import Epoch
from dpdemo.ranks.mistakes.evidence import trained_epochs
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake
from dpdemo.ranks.samples import Together

_WORKERS = (
    "set_epoch changes the data set of the main process, and persistent workers keep their copies: let them "
    "share the number (torch.tensor(0).share_memory_()), or set persistent_workers=False"
)


@mistake("same-order")
def find(evidence: Evidence) -> Found:
    """Compare each epoch with the one before it."""
    for ranks in evidence.crews().values():
        before: dict[str, Together] = {}
        told = set()
        numbers: dict[str, set[int | None]] = {}  # that set_epoch got, by loader
        for epoch in trained_epochs(ranks):
            numbers.setdefault(epoch.first.at, set()).add(epoch.first.set_epoch)
        for epoch in trained_epochs(ranks):
            at = epoch.first.at
            last = before.get(at)
            before[at] = epoch
            if last is None or at in told or not _same_order(last, epoch):
                continue
            is_stale = _are_stale(last, epoch)
            is_left = all(each.is_shuffled for each in epoch.epochs) and len(numbers[at]) == 1
            if is_stale or is_left:  # a loader that is read twice before the next set_epoch repeats its order
                told.add(at)
                which = f"Epochs {last.first.number} and {epoch.first.number}"
                cause = ", though the data set was changed between them" if is_stale else ""
                advice = _WORKERS if is_stale else "call sampler.set_epoch(epoch) before each epoch"
                yield Mistake(f"{which} drew the same order on every rank{cause}", at, advice)


def _same_order(last: Together, epoch: Together) -> bool:
    return all(_order(old) == _order(new) for old, new in zip(last.epochs, epoch.epochs, strict=True))


def _order(epoch: Epoch) -> tuple[int | None, ...]:
    return epoch.sum, epoch.count, epoch.set_epoch


def _are_stale(last: Together, epoch: Together) -> bool:
    """Return whether the data set has changed, and workers that outlive an epoch gave the same rows again."""
    is_new = all(old.dataset != new.dataset for old, new in zip(last.epochs, epoch.epochs, strict=True))
    is_kept = all(each.is_persistent and each.num_workers and not each.is_indexed for each in epoch.epochs)
    return is_new and is_kept and len(epoch.times) > 1

"""An epoch had no batch.

A sampler or loader that drops what does not fill a batch may drop everything; no error tells it.

Seen in: a loader that is at its end before its first batch, on all ranks

Instead: fewer ranks, a smaller batch, `drop_last=False`, or a stream that can be read again
"""

from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake
from dpdemo.ranks.samples import epochs_of
from dpdemo.wording import counted


@mistake("no-steps")
def find(evidence: Evidence) -> Found:
    """Look for whole epochs without a batch on any rank."""
    told = set()
    for epoch in epochs_of([noted.events for noted in evidence.ranks.values()]):
        first = epoch.first
        is_empty = epoch.is_complete and not any(each.count for each in epoch.epochs)
        is_meant = first.length == 0 or any("Skip" in name for name in first.samplers)
        if is_empty and not is_meant and first.at not in told:
            told.add(first.at)
            held = (
                "" if first.length is None else f", though the data set has {counted(first.length, 'sample')}"
            )
            yield Mistake(
                f"Epoch {first.number} had no batch on any rank{held}",
                first.at,
                "fewer ranks, a smaller batch or drop_last=False; a stream must begin again with each iter()",
            )

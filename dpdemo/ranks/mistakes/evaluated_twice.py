"""Evaluation counts samples twice (a note: some programs cut them off).

A sampler repeats samples until the ranks have as many; metrics over what all ranks drew count these twice.

Seen in: a whole epoch without training that draws more samples than the data set has

Instead: cut the repeated ones off after gathering (`gather_for_metrics`), or do not pad
"""

from dpdemo.ranks.events import CUT_OFF, Trap
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake
from dpdemo.ranks.samples import Together, epochs_of


@mistake("evaluated-twice")
def find(evidence: Evidence) -> Found:
    """Look for epochs of evaluation in which padding repeats samples."""
    told = set()
    if any(event.kind == CUT_OFF for noted in evidence.ranks.values() for event in noted[Trap]):
        return
    for epoch in epochs_of([noted.events for noted in evidence.ranks.values()]):
        at = epoch.first.at
        if at not in told and _is_padded(epoch):
            told.add(at)
            extra = epoch.num_repeated
            yield Mistake(
                f"Evaluation drew {epoch.times.total()} samples from {epoch.length}: {extra} "
                f"count{'s' if extra == 1 else ''} twice in a mean over all ranks",
                at,
                "cut them off after gathering, as gather_for_metrics does, or do not pad",
                "note",
            )


def _is_padded(epoch: Together) -> bool:
    if any(each.was_trained for each in epoch.epochs) or epoch.first.repeats:
        return False
    is_whole = epoch.is_complete and epoch.is_listed and epoch.length == len(epoch.times)
    is_split = epoch.first.is_distributed or epoch.first.splitter
    return bool(is_whole and is_split and 0 < epoch.num_repeated <= epoch.num_padded)

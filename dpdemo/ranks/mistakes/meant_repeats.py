"""A sampler repeats samples on purpose (a note).

Repeated augmentation and draws with replacement give some samples several times, and others not at all.

Seen in: samples drawn several times and samples left out, by a sampler that says so

Instead: nothing, if that is meant; an epoch is no pass over the data set then
"""

from dpdemo.ranks.mistakes.evidence import trained_epochs
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake


@mistake("meant-repeats")
def find(evidence: Evidence) -> Found:
    """Count what such a sampler repeats and leaves out."""
    for ranks in evidence.crews(shared=True).values():
        told = set()
        for epoch in trained_epochs(ranks):
            first = epoch.first
            is_known = epoch.is_complete and epoch.is_listed and epoch.by_index
            if first.at not in told and is_known and first.repeats and epoch.num_left_out:
                told.add(first.at)
                yield Mistake(
                    f"{first.repeats} repeats samples on purpose: {epoch.num_repeated} of "
                    f"{epoch.times.total()} draws of epoch {first.number} are repeats, and "
                    f"{epoch.num_left_out} of {epoch.length} samples were left out",
                    first.at,
                    "this is right if it is meant; an epoch is no pass over the data set then",
                    "note",
                )

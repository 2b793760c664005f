"""A data set was split between the ranks twice.

Each rank has a part of the set already, and a library gives it every n-th batch of that part alone.

Seen in: the samples of each rank's own set that it never draws; a stream that remembers its split;
samplers that cut one order twice, or into more parts than there are ranks

Instead: give the library the whole set, or leave the loader of a split set as it is
"""

from dpdemo.ranks.mistakes.evidence import trained_epochs
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake
from dpdemo.ranks.samples import Together

_REMEDY = "give it the whole set, or leave the loader of a split set out of prepare()"
_OF_SETS = (
    "make the same set on all ranks (one seed for random rows), or leave DistributedSampler out where each "
    "rank has rows of its own on purpose"
)


@mistake("split-twice")
def find(evidence: Evidence) -> Found:
    """Look at sets that are each rank's own, and at streams that were split before."""
    for ranks in evidence.crews(shared=True).values():
        told = set()
        for epoch in trained_epochs(ranks):
            first = epoch.first
            if first.at in told or not first.splitter:
                continue
            if first.split:
                told.add(first.at)
                part = f"1 of {len(epoch.epochs)} parts of the stream"
                only = (
                    "the first rank's part alone is read" if "Dispatch" in first.splitter else f"only {part}"
                )
                yield Mistake(
                    f"The stream was split by {first.split}, and then by {first.splitter}: {only}",
                    first.at,
                    _REMEDY,
                )
            elif epoch.by_index and (cause := _of_samplers(epoch, len(evidence.ranks))):
                told.add(first.at)
                left = f"{epoch.num_left_out} of {epoch.length} samples were left out"
                yield Mistake(f"{cause[0]}: {left}", first.at, cause[1])
            elif epoch.are_own and _is_part(epoch):
                told.add(first.at)
                yield Mistake(
                    f"Each rank has a data set of its own, and {first.splitter} gives it a part of that: "
                    f"{_left_out(epoch)} samples were left out",
                    first.at,
                    _OF_SETS if first.splitter == "DistributedSampler" else _REMEDY,
                )


def _of_samplers(epoch: Together, world: int) -> tuple[str, str] | None:
    """Return what samplers cut too often, or into too many parts, and what to do."""
    if not (epoch.is_complete and epoch.is_listed) or epoch.num_left_out <= epoch.num_padded:
        return None
    splits = [(name, parts) for name, parts in epoch.first.splits.items() if parts > 1]
    if len(splits) > 1:
        (last, _), (before, _) = splits[:2]
        return f"{before} takes a rank's part, and {last} takes a part of that", (
            f"leave {before} out, or the loader with it out of prepare()"
        )
    if splits and splits[0][1] > world:
        name, parts = splits[0]
        return f"{name} cuts the order into {parts} parts for {world} ranks", (
            "num_replicas=dist.get_world_size(), rank=dist.get_rank()"
        )
    return None


def _is_part(epoch: Together) -> bool:
    """Return whether each rank drew about one part of its own set in a whole epoch."""
    number = len(epoch.epochs)
    return epoch.is_complete and all(
        each.length is not None
        and each.drawn is not None
        and len(set(each.drawn)) < each.length
        and number * (len(set(each.drawn)) - max(each.sizes, default=1)) <= each.length
        for each in epoch.epochs
    )


def _left_out(epoch: Together) -> str:
    lengths = [each.length or 0 for each in epoch.epochs]
    drawn = [len(set(each.drawn or ())) for each in epoch.epochs]
    return f"{sum(lengths) - sum(drawn)} of {sum(lengths)}"

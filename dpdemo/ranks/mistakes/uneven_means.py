"""Ranks average means over different numbers of elements.

The average of two means is the mean of all elements only if both are over as many.

Seen in: the reductions of the loss, and the gradient that each of them gets, in at least half of the passes

Instead: divide the rank's sum by all ranks' number of elements, and multiply by the number of ranks
"""

from collections import defaultdict
from collections.abc import Sequence

from dpdemo.ranks.events import Loss
from dpdemo.ranks.mistakes.evidence import rows_of
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake

_UNEVEN, _CLOSE = 1.2, 1e-3
_REMEDY = "divide the rank's sum by all ranks' number of elements, and multiply by the number of ranks"


@mistake("uneven-means")
def find(evidence: Evidence) -> Found:
    """Compare the numbers of elements of each backward pass."""
    for ranks, noted in evidence.crews(shared=True).items():
        uneven: dict[str, list[tuple[float, ...]]] = defaultdict(list)
        total: dict[str, int] = defaultdict(int)
        for row in rows_of([mine[Loss] for mine in noted], "at", "number", "place", "name"):
            at = row[0].at
            total[at] += 1
            counts = tuple(loss.count for loss in row)
            if max(counts) > 0 and max(counts) >= _UNEVEN * min(counts) and _are_averaged(row):
                uneven[at].append(counts)
        for at, found in uneven.items():
            if 2 * len(found) >= total[at]:
                yield Mistake(_sentence(ranks, found[0]), at, _REMEDY)


def _are_averaged(row: Sequence[Loss]) -> bool:
    """Return whether each rank's mean counts as much as every other's, though it is over fewer elements."""
    sums = [loss.count * loss.weight for loss in row if loss.count]
    return max(sums) - min(sums) <= _CLOSE * max(sums)


def _sentence(ranks: Sequence[int], counts: Sequence[float]) -> str:
    low, high = counts.index(min(counts)), counts.index(max(counts))
    means = (
        f"Means over {counts[low]:g} elements on rank {ranks[low]} and {counts[high]:g} on rank {ranks[high]}"
    )
    if not counts[low]:
        return f"{means} are averaged: a rank without elements still divides the others' gradients"
    return (
        f"{means} are averaged: an element of rank {ranks[low]} weighs "
        f"{counts[high] / counts[low]:.3g} times as much"
    )

"""Each worker of a loader reads the whole stream.

Every worker iterates over its own copy of an IterableDataset: unless it takes a part, each gives all rows.

Seen in: a stream of several workers whose every row comes as many times on one rank as it has workers

Instead: let `__iter__` take the part of `torch.utils.data.get_worker_info()`
"""

from collections import Counter

from dpdemo.ranks.events import Epoch
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake

_REMEDY = "let __iter__ of the data set take the part of its worker: torch.utils.data.get_worker_info()"


@mistake("doubled-by-workers")
def find(evidence: Evidence) -> Found:
    """Count how often each row came, on each rank by itself."""
    found: dict[str, list[int]] = {}
    workers: dict[str, int] = {}
    for rank, noted in evidence.ranks.items():
        for epoch in noted[Epoch]:
            if _is_doubled(epoch) and rank not in found.setdefault(epoch.at, []):
                found[epoch.at].append(rank)
                workers[epoch.at] = epoch.num_workers
    for at, ranks in found.items():
        if ranks:
            where = "each rank" if len(ranks) == len(evidence.ranks) else f"rank {ranks[0]}"
            number = workers[at]
            text = f"All {number} workers of {where} read the whole stream: each row comes {number} times"
            yield Mistake(text, at, _REMEDY)


def _is_doubled(epoch: Epoch) -> bool:
    if epoch.is_indexed or epoch.num_workers < 2 or not epoch.is_complete:
        return False
    times = Counter(epoch.rows or ())
    return len(times) > 1 and all(count % epoch.num_workers == 0 for count in times.values())

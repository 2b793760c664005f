"""A rank did not call `new_group`.

All ranks have to make each group, also those that are not in it.

Seen in: the number of calls of each rank

Instead: call it on every rank, in the same order
"""

from collections import defaultdict

from dpdemo.ranks.events import NEW_GROUP, Collective
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake


@mistake("new-group")
def find(evidence: Evidence) -> Found:
    """Name a group that not all ranks made, although it is not under local synchronization."""
    made: dict[tuple[int, ...], dict[int, list[Collective]]] = defaultdict(lambda: defaultdict(list))
    for rank, noted in evidence.ranks.items():
        for event in noted[Collective]:
            if event.group.startswith(NEW_GROUP):
                made[event.members][rank].append(event)
    for members, by_rank in made.items():
        counts = {rank: len(by_rank[rank]) for rank in members}
        if set(members) <= set(evidence.ranks) and len(set(counts.values())) > 1:
            fewest = min(counts.values())
            missing = next(rank for rank in members if counts[rank] == fewest)
            event = next(by_rank[rank][fewest] for rank in members if counts[rank] > fewest)
            yield Mistake(
                f"Rank {missing} did not call {event.op} #{fewest + 1}, as others did",
                event.at,
                "every rank has to call it, also for a group that it is not in: "
                "NCCL waits for all of them if init_process_group got a device_id",
            )

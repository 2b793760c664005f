"""A checkpoint keeps one rank's value of a key that differs between ranks.

`torch.distributed.checkpoint.save` takes what is not sharded for the same on all ranks.

Seen in: a checksum of each value that is not a sharded tensor

Instead: the rank in the key of what belongs to a rank: `{f"random/{dist.get_rank()}": state}`
"""

from dpdemo.ranks.events import Checkpoint
from dpdemo.ranks.mistakes.evidence import rows_of
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake

_MAX_NAMES = 4


@mistake("mixed-checkpoint")
def find(evidence: Evidence) -> Found:
    """Compare the values of each save."""
    told = set()
    for row in rows_of([noted[Checkpoint] for noted in evidence.ranks.values()]):
        at, sums = row[0].at, [event.sums for event in row]
        differing = [name for name in sums[0] if len({each[name] for each in sums if name in each}) > 1]
        if not differing or at in told:
            continue
        told.add(at)
        more = f" and {len(differing) - _MAX_NAMES} others" if len(differing) > _MAX_NAMES else ""
        names = ", ".join(f"`{name}`" for name in differing[:_MAX_NAMES])
        yield Mistake(
            f"The checkpoint keeps one rank's value of {names}{more}, which differs between ranks",
            at,
            "put the rank into the key, {f'rank{dist.get_rank()}': …}, on saving and on loading; or make the "
            "value equal on all ranks",
        )

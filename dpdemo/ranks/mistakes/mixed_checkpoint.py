"""A checkpoint keeps one rank's value of a key that differs between ranks.

`torch.distributed.checkpoint.save` takes what is not sharded for the same on all ranks.

Seen in: a checksum of each value that is not a sharded tensor

Instead: the rank in the key of what belongs to a rank: `{f"random/{dist.get_rank()}": state}`
"""

from dpdemo.ranks.events import Checkpoint
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake

_MAX_NAMES = 4


@mistake("mixed-checkpoint")
def find(evidence: Evidence) -> Found:
    """Compare the values of each save."""
    saves = [
        {(event.at, event.number): event for event in noted[Checkpoint]} for noted in evidence.ranks.values()
    ]
    told = set()
    for key, event in saves[0].items():
        row = [mine[key].sums for mine in saves if key in mine]
        differing = [name for name in row[0] if len({sums[name] for sums in row if name in sums}) > 1]
        if len(row) < len(saves) or not differing or event.at in told:
            continue
        told.add(event.at)
        more = f" and {len(differing) - _MAX_NAMES} others" if len(differing) > _MAX_NAMES else ""
        names = ", ".join(f"`{name}`" for name in differing[:_MAX_NAMES])
        yield Mistake(
            f"The checkpoint keeps one rank's value of {names}{more}, which differs between ranks",
            event.at,
            "put the rank into the key, {f'rank{dist.get_rank()}': …}, on saving and on loading; or make the "
            "value equal on all ranks",
        )

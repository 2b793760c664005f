"""A checkpoint was loaded on some ranks only, and the model was sharded.

`fully_shard` keeps a part of each rank's own parameters, and sends none from rank 0 to the others.

Seen in: the ranks that called `load_state_dict`

Instead: load on every rank, or `set_model_state_dict` with `StateDictOptions(broadcast_from_rank0=True)`
"""

from dpdemo.ranks.events import Rows, StateLoaded
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake


@mistake("loaded-on-some")
def find(evidence: Evidence) -> Found:
    """Look for sharded models of which some ranks loaded a state and others none."""
    for team in evidence.wrapped:
        loaded = [
            [event for event in noted[StateLoaded] if event.taken and not event.is_optimizers]
            for noted in team.noted
        ]
        who = [rank for rank, mine in zip(team.ranks, loaded, strict=True) if mine]
        if (
            not team.model.startswith("fully_shard")
            or not team.noted[0][Rows]
            or len(who) in {0, len(loaded)}
        ):
            continue
        event = next(mine[0] for mine in loaded if mine)
        others = ", ".join(str(rank) for rank in team.ranks if rank not in who)
        yield Mistake(
            f"Rank {who[0]} loaded a checkpoint and rank {others} none: under fully_shard each rank keeps "
            "a part of its own parameters",
            event.at,
            "load it on every rank before fully_shard, or set_model_state_dict(…, options=StateDictOptions("
            "full_state_dict=True, broadcast_from_rank0=True))",
        )
        return

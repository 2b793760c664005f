"""Ranks that average gradients themselves have different parameters.

A program that calls `all_reduce` on gradients has to begin with equal parameters and to reduce all gradients.

Seen in: the tensors of the program's own reductions, and a checksum of the parameters

Instead: broadcast rank 0's parameters first, and average the gradients of all of them before each step
"""

from dpdemo.ranks.events import ByHand, Epoch, Parameters
from dpdemo.ranks.mistakes.evidence import Team
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake


@mistake("by-hand")
def find(evidence: Evidence) -> Found:
    """Name parameters that differ between ranks although these reduce their gradients, or should."""
    for team in evidence.by_hand:
        sums = [event for noted in team.noted for event in noted[ByHand]]
        first = team.first_difference()
        if (
            first is None
            or len(sums) < len(team.noted)
            or any(event.is_local or event.is_sharded or event.sends_rows for event in sums)
        ):
            continue
        since = f"after step {first.steps}" if first.steps else "from the start"
        differ = f"The parameters differ between ranks {since}"
        if all(event.is_beside for event in sums):
            if first.steps and not any(event.all + event.some for event in sums):
                yield _beside(differ, first, sums[0])
        elif all(event.all for event in sums) and not first.steps:
            yield Mistake(
                f"{differ}, although gradients are averaged",
                first.at,
                "broadcast rank 0's parameters first, or give all ranks one seed",
            )
        elif first.steps and all(event.all + event.some for event in sums):
            yield Mistake(differ, first.at, "average the gradients of all parameters before each step")
        elif all(event.is_alone for event in sums) and _has_sampler(team):
            wrapped = any(team.ranks == other.ranks and other.is_trained() for other in evidence.wrapped)
            if not wrapped or first.steps:  # beside a wrapped model a rank may have one of its own
                which = " of this optimizer" if wrapped else ""
                yield Mistake(
                    f"No gradient{which} was averaged; {differ[0].lower()}{differ[1:]}",
                    first.at,
                    "wrap the model in DistributedDataParallel" + (", too" if wrapped else ""),
                )


def _beside(differ: str, first: Parameters, event: ByHand) -> Mistake:
    """Name parameters that an optimizer has beside those of a wrapped model."""
    shapes = ", ".join(shape.partition(" (")[0] for shape in event.shapes)
    return Mistake(
        f"{differ}: the optimizer also has parameters of shape {shapes} that are under no wrapper, "
        "and whose gradients are not averaged",
        first.at,
        "average them, too: inside DistributedDataParallel or fully_shard, by the plan of parallelize_module "
        "(SequenceParallel for norms), or by dist.all_reduce of their gradients",
    )


def _has_sampler(team: Team) -> bool:
    """Return whether each rank trains with samples that a DistributedSampler chose for it."""
    epochs = [[epoch for epoch in noted[Epoch] if epoch.was_trained] for noted in team.noted]
    return all(any(epoch.is_distributed for epoch in mine) for mine in epochs)

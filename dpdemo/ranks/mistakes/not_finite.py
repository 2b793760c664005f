"""A loss or a gradient was not finite.

The average spreads one rank's NaN to all ranks: the model no longer shows where it began.

Seen in: each loss, and each gradient before it is averaged, if an optimizer then makes a step with it

Instead: look at that rank's rows; skip the step on all ranks together
"""

from dpdemo.ranks.events import NotFinite
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake


@mistake("not-finite", when_stopped=True)
def find(evidence: Evidence) -> Found:
    """Name the rank and the step at which it began."""
    noted = [(event.step, rank, event) for rank, mine in evidence.ranks.items() for event in mine[NotFinite]]
    if not noted:
        return
    step, rank, event = min(noted, key=lambda each: each[:2])
    ranks = [other for when, other, same in noted if (when, same.what) == (step, event.what)]
    who = "all ranks" if len(ranks) == len(evidence.ranks) else f"rank {rank} alone"
    what = f"loss was {event.value}" if event.what == "loss" else "gradient was not finite"
    yield Mistake(
        f"The {what} at step {step} on {who}, and the step was made with it",
        event.at,
        "look at the rows of that step; to skip it, let all ranks decide together: dist.all_reduce a flag "
        "(torch.isfinite(loss)) with ReduceOp.MIN, and skip the step on every rank",
    )

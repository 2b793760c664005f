"""A rank trains in the mode of an evaluation, and others do not.

A rank that validates alone and does not call `model.train()` again goes on without dropout.

Seen in: `model.training` at each step

Instead: `model.train()` on every rank before the loop goes on
"""

from dpdemo.ranks.events import Mode
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake


@mistake("modes")
def find(evidence: Evidence) -> Found:
    """Compare from which calls on each rank's model is in which mode."""
    for team in evidence.wrapped:
        modes = [{event.step: event for event in noted[Mode]} for noted in team.noted]
        steps = sorted({step for mine in modes for step in mine})
        step = next((each for each in steps if not all(each in mine for mine in modes)), None)
        if step is None:
            continue
        rank, event = next(
            (rank, mine[step]) for rank, mine in zip(team.ranks, modes, strict=True) if step in mine
        )
        mode = "train" if event.is_train else "eval"
        yield Mistake(
            f"Rank {rank} makes step {step} in {mode}() mode, unlike the others",
            event.at,
            "call model.train() on every rank before training goes on, also on the one that evaluates",
        )

"""A rank trains in the mode of an evaluation, and others do not.

A rank that validates alone and does not call `model.train()` again goes on without dropout.

Seen in: `model.training` at each call in training

Instead: `model.train()` on every rank before the loop goes on
"""

from dpdemo.ranks.events import Mode, Rows
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake


@mistake("modes")
def find(evidence: Evidence) -> Found:
    """Compare from which calls on each rank's model is in which mode."""
    for team in evidence.wrapped:
        modes = [{event.number: event.is_train for event in noted[Mode]} for noted in team.noted]
        number = next(
            (
                each
                for each in sorted({number for mine in modes for number in mine})
                if len({mine.get(each) for mine in modes}) > 1
            ),
            None,
        )
        if number is None or not all(noted[Rows] for noted in team.noted):
            continue
        rank = next(rank for rank, mine in zip(team.ranks, modes, strict=True) if number in mine)
        event = next(event for noted in team.noted for event in noted[Mode] if event.number == number)
        mode = "train" if event.is_train else "eval"
        yield Mistake(
            f"Rank {rank} trains in {mode}() mode from its call {number} on, unlike the others",
            event.at,
            "call model.train() on every rank before training goes on, also on the one that evaluates",
        )

"""The wrapper was gone before `backward()`, so that nothing is averaged.

The reducer lives as long as the wrapper: `DDP(model)(rows)` has none in its backward pass.

Seen in: a backward pass through the output of a wrapper that no variable holds any more

Instead: wrap the model once, and keep the wrapper as long as the model is trained
"""

from dpdemo.ranks.events import WrapperGone
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake


@mistake("wrapper-gone", when_stopped=True)
def find(evidence: Evidence) -> Found:
    """Name the first pass of each model whose wrapper was gone."""
    told = set()
    for team in evidence.wrapped:
        gone = [event for noted in team.noted for event in noted[WrapperGone]]
        if gone and gone[0].at not in told:
            told.add(gone[0].at)
            yield Mistake(
                f"No gradient was averaged: the wrapper made at {team.at} was gone before backward",
                gone[0].at,
                "wrap the model once, before the loop, and keep the wrapper as long as the model trains",
            )

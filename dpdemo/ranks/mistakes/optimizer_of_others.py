"""The optimizer was made before FSDP, so that no step changes the model.

FSDP replaces the parameters of a module by shards; an optimizer that was made before has the old ones.

Seen in: an optimizer whose parameters never get a gradient, beside a wrapped model that no step changes

Instead: make the optimizer after the model is wrapped, from the wrapped model's parameters
"""

from dpdemo.ranks.events import ByHand, Unstepped
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake


@mistake("optimizer-of-others", when_stopped=True)
def find(evidence: Evidence) -> Found:
    """Look for idle optimizers on each rank."""
    for noted in evidence.ranks.values():
        for event in noted[ByHand]:
            if event.is_idle and noted[Unstepped]:
                wrapper = noted[Unstepped][0].wrapper
                if event.was_whole:
                    yield Mistake(
                        f"No step changes the model under {wrapper}: the optimizer was made while the "
                        "parameters were unsharded, after a forward pass, and has them instead of shards",
                        event.at,
                        "make the optimizer before the first forward, or call model.reshard() before that",
                    )
                    continue
                yield Mistake(
                    f"No step changes the model under {wrapper}: "
                    "the optimizer has other parameters, which never get a gradient",
                    event.at,
                    "make the optimizer after the model is wrapped, from the wrapped model's parameters",
                )

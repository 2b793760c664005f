"""A rank skipped a batch on which the others trained.

The collectives of its next batch meet those of the others' last one, and one rank waits at the end.

Seen in: batches that were drawn and not used, and calls in training without a backward pass

Instead: skip it on all ranks together, or multiply its loss by 0 and make the pass
"""

from dpdemo.ranks.events import Skipped, Trained
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake


@mistake("skipped-batch", when_stopped=True)
def find(evidence: Evidence) -> Found:
    """Name the first batch that some ranks skipped and others did not."""
    for team in evidence.wrapped:
        passes = {event.backwards for noted in team.noted for event in noted[Trained]}
        if not evidence.were_stopped and len(passes) < 2:
            continue
        skipped = [{event.number: event for event in noted[Skipped]} for noted in team.noted]
        numbers = sorted({number for mine in skipped for number in mine})
        for number in numbers:
            who = [rank for rank, mine in zip(team.ranks, skipped, strict=True) if number in mine]
            if len(who) == len(team.ranks):
                continue
            event = next(mine[number] for mine in skipped if number in mine)
            what = (
                f"made no backward pass for its call {number}"
                if event.had_forward
                else (f"drew a batch after its call {number} and did not use it")
            )
            yield Mistake(
                f"Rank {who[0]} {what}, unlike the others",
                event.at,
                "decide together whether to skip: dist.all_reduce a flag with ReduceOp.MAX; or make the pass "
                "with the loss times 0",
            )
            break

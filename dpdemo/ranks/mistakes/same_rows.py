"""All ranks trained on the same rows.

A loop without a DataLoader draws or cuts its rows by a seed that all ranks share.

Seen in: checksums of the rows that enter a wrapped module, where no loader fed it

Instead: give each rank rows of its own, or its own seed for drawing them
"""

from dpdemo.ranks.events import Epoch, Rows
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake


@mistake("same-rows")
def find(evidence: Evidence) -> Found:
    """Compare the rows of all ranks, which have to change from step to step."""
    for team in evidence.wrapped:
        if any(_is_named(epoch) for noted in team.noted for epoch in noted[Epoch]):
            continue
        sums = [[event.sum for event in noted[Rows]] for noted in team.noted]
        if sums[0] and len(set(sums[0])) > 1 and all(others == sums[0] for others in sums):
            yield Mistake(
                f"All {len(team.ranks)} ranks trained on the same rows in each of {len(sums[0])} steps",
                team.noted[0][Rows][0].at,
                "give each rank rows of its own, or its own seed for drawing them",
            )


def _is_named(epoch: Epoch) -> bool:
    """Return whether the samples of a loader are known, and so judged by themselves."""
    return epoch.was_trained and (epoch.is_indexed or epoch.rows is not None)

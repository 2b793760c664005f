"""The hyperparameters of an optimizer differ between ranks.

Ranks that step with the same gradient and another learning rate no longer have the same model.

Seen in: the numbers of each optimizer's groups at each step, where ranks train its parameters together

Instead: decide by a number that is reduced over the ranks, or on rank 0, and broadcast the decision
"""

from dpdemo.ranks.events import Hyperparameters, Metric, Read
from dpdemo.ranks.mistakes.evidence import (
    RankEvents,
    by_rank,
    differing_hyperparameters,
    differing_reads,
    rows_of,
)
from dpdemo.ranks.mistakes.registry import Evidence, Found, Mistake, mistake

_CLOSE = 1e-6
_REMEDY = (
    "give all ranks the same values; reduce a metric that decides over the ranks first (dist.all_reduce)"
)
_WORDS = {"lr": "learning rate", "weight_decay": "weight decay"}


@mistake("hyperparameters")
def find(evidence: Evidence) -> Found:
    """Name the first step with other values, and the number by which the ranks decided."""
    together = {event.ranks for noted in evidence.ranks.values() for event in noted[Hyperparameters]}
    for ranks in sorted(together):
        if len(ranks) < 2 or not set(ranks) <= set(evidence.ranks):
            continue
        noted = [evidence.ranks[rank] for rank in ranks]
        found = differing_hyperparameters(
            [[event for event in mine[Hyperparameters] if event.ranks == ranks] for mine in noted]
        )
        metric = _metric(noted)
        if found is None and metric is not None:
            yield _of_metric("", metric, ranks, noted)
        if found is None:
            continue
        word, _, group = found.name.partition(" of ")
        name = f"{_WORDS.get(word, word)}{f' of {group}' if group else ''}"
        differ = f"The {name} differs between ranks from step {found.step} on: {by_rank(ranks, found.values)}"
        yield (
            Mistake(differ, found.at, _REMEDY)
            if metric is None
            else _of_metric(f"{differ}. ", metric, ranks, noted)
        )


def _metric(noted: list[RankEvents]) -> tuple[Metric, ...] | None:
    """Return the first number by which ReduceLROnPlateau decides and that differs between ranks."""
    for row in rows_of([mine[Metric] for mine in noted]):
        values = [event.value for event in row]
        if max(values) - min(values) > _CLOSE * max(map(abs, values)):
            return row
    return None


def _of_metric(
    differ: str, row: tuple[Metric, ...], ranks: tuple[int, ...], noted: list[RankEvents]
) -> Mistake:
    values = by_rank(ranks, [event.value for event in row])
    sources = differing_reads([mine[Read] for mine in noted], is_training=False)
    source = f" (read at {sources[0][0].at})" if sources else ""
    return Mistake(
        f"{differ}ReduceLROnPlateau got another number on each rank: {values}",
        row[0].at,
        f"reduce the metric over the ranks first{source}: dist.all_reduce its sum and its count",
    )

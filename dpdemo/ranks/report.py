"""The report of `exec --ranks`, from the events of all ranks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from dpdemo.ranks.events import Epoch, ModelMade, Trained
from dpdemo.ranks.mistakes import find_mistakes
from dpdemo.results.ranks import Collective, Coverage, RankModel, RankResult, RankSamples, RanksResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dpdemo.ranks.log import RankLog


class Program(Protocol):
    """The program that ran: its text names it."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """Its arguments."""


def summary(program: Program, logs: Sequence[RankLog], problem: tuple[str, ...]) -> RanksResult:
    """Sum up what the ranks noted."""
    return RanksResult(
        program=str(program),
        arguments=program.arguments,
        ranks=tuple(
            RankResult(
                rank=log.number,
                exit_code=log.exit_code(),
                collectives=tuple(Collective(name, *sums) for name, sums in sorted(log.sums.items())),
                peak_bytes=log.end.peak_bytes if log.end else {},
                models=_models(log),
                samples=_samples(log),
            )
            for log in logs
        ),
        problem=problem,
        mistakes=() if problem else find_mistakes({log.number: log.events for log in logs}),
        coverage=tuple(_coverage(logs)),
    )


def _models(log: RankLog) -> tuple[RankModel, ...]:
    made = {event.model: event for event in log.events if isinstance(event, ModelMade)}
    return tuple(
        RankModel(
            made[event.model].name,
            made[event.model].at,
            event.forwards,
            event.backwards,
            event.steps,
            event.shapes,
            made[event.model].wrapper,
            event.skipped,
        )
        for event in log.events
        if isinstance(event, Trained) and event.model in made
    )


def _samples(log: RankLog) -> tuple[RankSamples, ...]:
    found: dict[str, RankSamples] = {}
    for epoch in log.events:
        if isinstance(epoch, Epoch) and epoch.is_indexed:
            samples = found.get(epoch.at, RankSamples(epoch.at, 0, 0, epoch.length))
            found[samples.at] = RankSamples(
                samples.at, samples.epochs + 1, samples.drawn + epoch.count, samples.length
            )
    return tuple(found.values())


def _coverage(logs: Sequence[RankLog]) -> Iterator[Coverage]:
    """Count the samples that all ranks together drew in a DataLoader's first epoch, where all finished it."""
    first = [
        {epoch.at: epoch for epoch in log.events if isinstance(epoch, Epoch) and epoch.number == 1}
        for log in logs
    ]
    for at, epoch in first[0].items() if first else ():
        row = [epochs[at] for epochs in first if at in epochs and epochs[at].is_complete]
        drawn = [each.drawn for each in row if each.drawn is not None]
        same_data = len({each.dataset for each in row}) == 1
        if len(drawn) == len(logs) and same_data and epoch.length:
            times = Counter(index for indices in drawn for index in indices)
            total = times.total()
            yield Coverage(at, epoch.length, total, total - len(times), epoch.length - len(times))

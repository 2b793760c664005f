"""The report of `exec --ranks`, from the events of all ranks."""

from collections.abc import Sequence
from typing import Protocol

from dpdemo.ranks.events import ModelMade, Trained
from dpdemo.ranks.log import RankLog
from dpdemo.ranks.mistakes import find_mistakes
from dpdemo.ranks.samplereport import coverage, read_for_all, samples_of
from dpdemo.results.ranks import Collective, RankModel, RankResult, RanksResult


class Program(Protocol):
    """The program that ran: its text names it."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """Its arguments."""


def summary(program: Program, logs: Sequence[RankLog], problem: tuple[str, ...]) -> RanksResult:
    """Sum up what the ranks noted."""
    indices = read_for_all([log.events for log in logs])
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
                samples=samples_of(log.events, indices),
            )
            for log in logs
        ),
        problem=problem,
        mistakes=find_mistakes({log.number: log.events for log in logs}, were_stopped=bool(problem)),
        coverage=tuple(coverage([log.events for log in logs])),
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

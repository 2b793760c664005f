"""The report of `exec --ranks`, from the events of all ranks."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from dpdemo.ranks.events import ModelMade, Trained
from dpdemo.ranks.log import RankLog
from dpdemo.ranks.mistakes import find_mistakes
from dpdemo.ranks.mistakes.registry import unjudged
from dpdemo.ranks.samplereport import coverage, read_for_all, renumbered, samples_of
from dpdemo.results.ranks import Collective, Mistake, RankModel, RankResult, RanksResult


class Program(Protocol):
    """The program that ran: its text names it."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """Its arguments."""


def summary(
    program: Program, logs: Sequence[RankLog], problem: tuple[str, ...], *, are_stuck: bool
) -> RanksResult:
    """Sum up what the ranks noted; a part that fails costs its own line."""
    bugs: list[Mistake] = []

    def part(name: str, make: Callable[[], Any], nothing: Callable[[], Any]) -> Any:
        try:
            return make()
        except Exception as error:  # noqa: BLE001 - a bug here costs one line, not the report
            bugs.append(unjudged(name, error))
            return nothing()

    noted = [log.events for log in logs]
    events = part("names of loaders", partial(renumbered, noted), lambda: noted)
    indices = part("samples", partial(read_for_all, events), dict)
    ranks = tuple(
        RankResult(
            rank=log.number,
            exit_code=log.exit_code(),
            collectives=tuple(Collective(name, *sums) for name, sums in sorted(log.sums.items())),
            peak_bytes=log.end.peak_bytes if log.end else {},
            models=_models(log),
            samples=part("samples", partial(samples_of, mine, indices), tuple),
        )
        for log, mine in zip(logs, events, strict=True)
    )
    covered = part("coverage", lambda: tuple(coverage(events)), tuple)
    by_rank = {log.number: mine for log, mine in zip(logs, events, strict=True)}
    find = partial(find_mistakes, by_rank, were_stopped=bool(problem), are_stuck=are_stuck)
    mistakes = part("mistakes", find, tuple)
    return RanksResult(
        program=str(program),
        arguments=program.arguments,
        ranks=ranks,
        problem=problem,
        mistakes=(*mistakes, *dict.fromkeys(bugs)),
        coverage=covered,
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

"""The events of all ranks as detectors read them: by rank, by kind, and by the model they belong to."""

import math
import operator
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

from dpdemo.ranks.events import (
    ByHand,
    Event,
    Hyperparameters,
    ModelMade,
    Parameters,
    Read,
    Rows,
    SameRows,
    Steps,
    Unsynced,
)
from dpdemo.ranks.samples import Together, epochs_of

Kind = TypeVar("Kind", bound=Event)


class RankEvents:
    """The events of one rank."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self._by_kind: dict[type[Event], list[Event]] = defaultdict(list)
        for event in events:
            self._by_kind[type(event)].append(event)

    def __getitem__(self, kind: type[Kind]) -> list[Kind]:
        """Return the events of one kind, in order."""
        return self._by_kind[kind]  # type: ignore[return-value]

    def last_steps(self) -> list[Steps]:
        """Return the events with which models under a wrapper or an optimizer end."""
        return [event for event in self[Steps] if event.each is not None]

    def factors(self) -> dict[int, float]:
        """Return by which factor the gradients were multiplied before each step, where that is known."""
        return {
            step: factor
            for event in self[Steps]
            for step, factor in enumerate(event.scales, event.first)
            if factor
        }

    def of_model(self, model: str) -> "RankEvents":
        """Return a rank's events without those of other models."""
        return RankEvents([event for event in self.events if getattr(event, "model", model) == model])


@dataclass(frozen=True)
class Team:
    """Ranks that train one model together, with what each noted of it and of all that is no model's."""

    ranks: tuple[int, ...]
    model: str
    noted: tuple[RankEvents, ...]

    @property
    def at(self) -> str:
        """The line that made the model, or its first optimizer step."""
        made = [event.at for noted in self.noted for event in noted[ModelMade]]
        made += [event.at for noted in self.noted for event in noted[ByHand]]
        return made[0] if made else ""

    def checks(self) -> list[tuple[Parameters, ...]]:
        """Return the checksums of the ranks' parameters: before calls, then after each step."""
        rows = list(zip(*(noted[Parameters] for noted in self.noted), strict=False))
        steps = [_each_step(noted) for noted in self.noted]
        common = sorted(set.intersection(*map(set, steps))) if steps else []
        if common:
            rows = [row for row in rows if row[0].steps < common[0]]
        return rows + [tuple(mine[step] for mine in steps) for step in common]

    def first_difference(self) -> Parameters | None:
        """Return the first check from which on the parameters differ between ranks, to the end."""
        checks = self.checks()
        same = [number for number, row in enumerate(checks) if not _differs(row)]
        first = same[-1] + 1 if same else 0
        return checks[first][0] if first < len(checks) else None

    def differing(self) -> list[str]:
        """Name the parameters that differ between ranks at the end of the run; none if that is unknown."""
        last = [event.each for noted in self.noted for event in noted[Steps] if event.each is not None]
        if len(last) < len(self.noted):
            return []
        return [name for name in last[0] if len({each.get(name) for each in last}) > 1]

    def is_trained(self) -> bool:
        """Return whether a wrapped model was called in training."""
        first = self.noted[0]
        return bool(first[Rows]) or bool(first[Unsynced])

    def is_shared(self) -> bool:
        """Return whether the ranks of a model under no wrapper reduce its gradients, or do all the same."""
        by_hand = [event for noted in self.noted for event in noted[ByHand]]
        is_reduced = len(by_hand) == len(self.noted) and all(event.all + event.some for event in by_hand)
        checks = self.checks()
        return is_reduced or (len(checks) > 1 and not any(map(_differs, checks)))


class Evidence:
    """The events of all ranks."""

    def __init__(
        self, events: Mapping[int, Sequence[Event]], *, were_stopped: bool = False, are_stuck: bool = False
    ) -> None:
        self.were_stopped, self.are_stuck = were_stopped, are_stuck
        self.ranks = {rank: RankEvents(mine) for rank, mine in events.items()}

    @cached_property
    def wrapped(self) -> tuple[Team, ...]:
        """The models under DistributedDataParallel or FSDP."""
        return self._teams(ModelMade)

    @cached_property
    def by_hand(self) -> tuple[Team, ...]:
        """The parameters of optimizers that are under no wrapper."""
        return self._teams(ByHand)

    @cached_property
    def shared(self) -> tuple[Team, ...]:
        """The models that ranks do train together."""
        wrapped = (team for team in self.wrapped if team.is_trained())
        return *wrapped, *(team for team in self.by_hand if team.is_shared())

    def crews(self, *, shared: bool = False) -> dict[tuple[int, ...], list[RankEvents]]:
        """Return each set of ranks that trains some model, or with `shared` that divides its rows."""
        teams = self.shared if shared else (*self.wrapped, *self.by_hand)
        crews = {self._apart(team.ranks) if shared else team.ranks for team in teams}
        return {ranks: [self.ranks[rank] for rank in ranks] for ranks in sorted(crews) if len(ranks) > 1}

    def _apart(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """Leave out the ranks that tensor parallelism gives the rows of another."""
        return tuple(
            rank for rank in ranks if all(rank == min(event.ranks) for event in self.ranks[rank][SameRows])
        )

    def _teams(self, kind: type[ModelMade | ByHand]) -> tuple[Team, ...]:
        found = {
            (tuple(event.ranks), event.model)
            for noted in self.ranks.values()
            for event in noted[kind]
            if len(event.ranks) > 1 and set(event.ranks) <= set(self.ranks)
        }
        return tuple(
            Team(ranks, model, tuple(self.ranks[rank].of_model(model) for rank in ranks))
            for ranks, model in sorted(found)
        )


def _each_step(noted: RankEvents) -> dict[int, Parameters]:
    """Return a rank's checks after each step."""
    return {
        step: Parameters(event.model, each, step, event.at)
        for event in noted[Steps]
        for step, each in enumerate(event.sums, event.first)
    }


def _differs(row: Sequence[Parameters]) -> bool:
    return len({event.sum for event in row}) > 1


class Difference(NamedTuple):
    """The first step at which a hyperparameter differs between ranks."""

    step: int
    name: str
    values: tuple[float, ...]  # by rank
    at: str


def differing_hyperparameters(ranks: Sequence[Sequence[Hyperparameters]]) -> Difference | None:
    """Return the first difference of an optimizer's hyperparameters, if it lasts to the end."""
    for optimizer in dict.fromkeys(event.optimizer for mine in ranks for event in mine):
        courses = [[event for event in mine if event.optimizer == optimizer] for mine in ranks]
        if not all(courses):
            continue
        changes = sorted({step for mine in courses for event in mine for step in event.steps})
        found: Difference | None = None
        now: list[dict[str, float]] = [{} for _ in ranks]
        by_step = [
            {step: values for event in mine for step, values in zip(event.steps, event.values, strict=False)}
            for mine in courses
        ]
        for step in changes:
            for known, mine in zip(now, by_step, strict=True):
                known.update(mine.get(step, {}))
            name = next((name for name in now[0] if len({known.get(name) for known in now}) > 1), None)
            if name is None:
                found = None
            elif found is None:
                values = tuple(known.get(name, math.nan) for known in now)
                found = Difference(step, name, values, courses[0][0].at)
        if found is not None:
            return found
    return None


def rows_of(ranks: Sequence[Sequence[Kind]], *fields: str) -> Iterator[tuple[Kind, ...]]:
    """Yield the events that are alike in some fields on all ranks, one of each rank."""
    key = operator.attrgetter(*(fields or ("at", "number")))
    keyed = [{key(event): event for event in mine} for mine in ranks]
    for each in keyed[0] if keyed else ():
        if all(each in mine for mine in keyed):
            yield tuple(mine[each] for mine in keyed)


def by_rank(ranks: Iterable[int], values: Iterable[float | str]) -> str:
    """Write a number, or a word, of each rank."""
    shown = [value if isinstance(value, str) else f"{value:.4g}" for value in values]
    return ", ".join(f"{value} on rank {rank}" for rank, value in zip(ranks, shown, strict=True))


def differing_reads(
    ranks: Sequence[Sequence[Read]], *, is_training: bool | None = None
) -> list[tuple[Read, ...]]:
    """Return the reads that gave other numbers on some ranks, one of each rank, the last ones first."""
    found = [row for row in rows_of(ranks) if len({repr(read.value) for read in row}) > 1]
    return [row for row in reversed(found) if is_training in {None, row[0].is_training}]


def read_by_rank(ranks: Sequence[int], row: Sequence[Read]) -> str:
    """Write the number that each rank read, `0.31 on rank 0, 0.4 on rank 1`."""
    if row[0].how == "numbers":
        return "other lists or arrays on each rank"
    return by_rank(ranks, [str(bool(read.value)) if read.how == "bool" else read.value for read in row])


def trained_epochs(ranks: Sequence[RankEvents]) -> Iterator[Together]:
    """Yield the epochs of training that all of these ranks made over a loader, with what each drew."""
    for epoch in epochs_of([noted.events for noted in ranks]):
        if epoch.was_trained and all(each.count for each in epoch.epochs):
            yield epoch

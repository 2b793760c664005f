"""The events of all ranks as detectors read them: by rank, by kind, and by the model they belong to."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from dpdemo.ranks.events import ByHand, Event, ModelMade, Parameters, Rows, Unsynced
from dpdemo.ranks.samples import epochs_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dpdemo.ranks.samples import Together

Kind = TypeVar("Kind", bound=Event)


class Noted:
    """The events of one rank."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self._by_kind: dict[type[Event], list[Event]] = defaultdict(list)
        for event in events:
            self._by_kind[type(event)].append(event)

    def __getitem__(self, kind: type[Kind]) -> list[Kind]:
        """Return the events of one kind, in order."""
        return self._by_kind[kind]  # type: ignore[return-value]

    def of_model(self, model: str) -> Noted:
        """Return a rank's events without those of other models."""
        return Noted([event for event in self.events if getattr(event, "model", model) == model])


@dataclass(frozen=True)
class Team:
    """Ranks that train one model together, with what each noted of it and of all that is no model's."""

    ranks: tuple[int, ...]
    model: str
    noted: tuple[Noted, ...]

    @property
    def at(self) -> str:
        """The line that made the model, or its first optimizer step."""
        made = [event.at for noted in self.noted for event in noted[ModelMade]]
        made += [event.at for noted in self.noted for event in noted[ByHand]]
        return made[0] if made else ""

    def checks(self) -> list[tuple[Parameters, ...]]:
        """Return the checksums of the ranks' parameters, moment by moment."""
        return list(zip(*(noted[Parameters] for noted in self.noted), strict=False))

    def first_difference(self) -> Parameters | None:
        """Return the first check from which on the parameters differ between ranks, to the end."""
        differs = [_differs(row) for row in self.checks()]
        if True not in differs or not all(differs[differs.index(True) :]):
            return None
        return self.checks()[differs.index(True)][0]

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

    def __init__(self, events: Mapping[int, Sequence[Event]]) -> None:
        self.ranks = {rank: Noted(mine) for rank, mine in events.items()}

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

    def crews(self, *, shared: bool = False) -> dict[tuple[int, ...], list[Noted]]:
        """Return each set of ranks that trains some model, or shares one."""
        teams = self.shared if shared else (*self.wrapped, *self.by_hand)
        return {team.ranks: [self.ranks[rank] for rank in team.ranks] for team in teams}

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


def _differs(row: Sequence[Parameters]) -> bool:
    return len({event.sum for event in row}) > 1


def trained_epochs(ranks: Sequence[Noted]) -> Iterator[Together]:
    """Yield the epochs of training that all of these ranks made over a loader, with what each drew."""
    for epoch in epochs_of([noted.events for noted in ranks]):
        if epoch.was_trained and all(each.count for each in epoch.epochs):
            yield epoch

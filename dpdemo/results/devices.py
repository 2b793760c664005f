"""Names of devices in replica order."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import groupby, pairwise
from typing import Self, TypeVar

_Member = TypeVar("_Member")
_Key = TypeVar("_Key", bound=Hashable)

_MANY = 8
_MOST_SPANS = 3
"""A label names up to this many spans of ordinals; the numbers of more are cut short and counted."""


class Devices(tuple[str, ...]):
    """Names of devices of one kind, in replica order: `Devices.of("cuda", [0, 1, 2])`."""

    __slots__ = ()

    @classmethod
    def of(cls, kind: str, ordinals: Iterable[int]) -> Self:
        """Build the devices of `kind` with these ordinals, in this order."""
        return cls(f"{kind}:{ordinal}" for ordinal in ordinals)

    @classmethod
    def cpu(cls, times: int = 1) -> Self:
        """Build the one device that has no ordinal, or several of it for the ranks of a node."""
        return cls(("cpu",) * times)

    @property
    def kind(self) -> str:
        """The kind of the devices, such as `cuda`."""
        return self[0].partition(":")[0] if self else "cuda"

    @property
    def ordinals(self) -> list[int]:
        """The ordinal of each device; 0 where its name has none."""
        return [ordinal_of(name) for name in self]

    def __str__(self) -> str:
        """Write a short form: `cuda:0`, `cuda:0–6`, or `cuda:2, cuda:0`; nine and more are cut short."""
        if len(self) > 1 and is_stretch(self, (1,)):
            return f"{self[0]}–{ordinal_of(self[-1])}"
        if len(self) > _MANY:
            return f"{', '.join(self[:4])}, ... {self[-1]} ({len(self)} devices)"
        return ", ".join(self)

    def without(self, taken: Sequence[str]) -> "Devices":
        """Leave out devices that were taken in this order; those that are left are idle."""
        waiting = list(taken)
        left = []
        for name in self:
            if waiting and waiting[0] == name:
                waiting.pop(0)
            else:
                left.append(name)
        # a replica may lie elsewhere than asked, as a module's own devices do; then they are only counted
        return Devices(self[len(taken) :] if waiting else left)


def ordinal_of(name: str) -> int:
    """Return the ordinal in a device's name; 0 where it has none."""
    return int(name.partition(":")[2] or 0)


def is_stretch(names: Sequence[str], steps: Sequence[int] = (-1, 0, 1)) -> bool:
    """Return whether ordinals rise, fall or stay all along, by one of these steps."""
    ordinals = [ordinal_of(name) for name in names]
    found = {after - before for before, after in pairwise(ordinals)}
    return not found or (len(found) == 1 and found <= set(steps))


def alike(members: Iterable[_Member], key: Callable[[_Member], _Key]) -> dict[_Key, list[_Member]]:
    """Group members by their key, in the order of the first of each group."""
    found: dict[_Key, list[_Member]] = {}
    for member in members:
        found.setdefault(key(member), []).append(member)
    return found


def spans(numbers: Iterable[int]) -> list[str]:
    """Write numbers, neighbours as a span: `0–3`, `5`."""
    found = []
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda each: each[1] - each[0]):
        members = [number for _, number in run]
        found.append(str(members[0]) if len(members) == 1 else f"{members[0]}–{members[-1]}")
    return found


def label(names: Sequence[str]) -> str:
    """Name several devices in any order: `cuda:1–3`, `cuda:0, 2–4`, or `cuda:0, 2, 4, ... (32 GPUs)`."""
    if len(names) == 1:
        return names[0]
    found = spans(map(ordinal_of, names))
    more = f", ... ({len(names)} GPUs)" if len(found) > _MOST_SPANS else ""
    return f"{names[0].partition(':')[0]}:{', '.join(found[:_MOST_SPANS])}{more}"

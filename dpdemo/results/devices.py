"""Names of devices in replica order."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Self

_MANY = 8


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

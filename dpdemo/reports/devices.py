"""Names of devices, kept by range so that a hundred thousand of them cost what eight do."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise, repeat
from typing import overload


@dataclass(frozen=True, slots=True)
class Tiled(Sequence[int]):
    """The same ordinals several times over: what the ranks of equal nodes have."""

    pattern: Sequence[int]
    times: int

    def __len__(self) -> int:
        return len(self.pattern) * self.times

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(repeat(self.pattern, self.times))

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        places = range(len(self))[index]
        if isinstance(places, int):
            return self.pattern[places % len(self.pattern)]
        return tuple(self.pattern[place % len(self.pattern)] for place in places)


@dataclass(frozen=True, slots=True)
class Devices:
    """Some devices of one kind, in replica order: `Devices.of("cuda", [0, 1, 2])`.

    `ordinals` is a range wherever the ordinals are consecutive, and Tiled wherever they repeat, so equal
    devices compare equal.
    """

    kind: str
    ordinals: Sequence[int]

    @classmethod
    def of(cls, kind: str, ordinals: Sequence[int]) -> "Devices":
        """Build the devices of `kind` with these ordinals, in this order."""
        return cls(kind, _compact(ordinals))

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> object:
        """Tell pydantic how they are written: as their names, each made when it is read."""
        from pydantic_core import core_schema as core

        names = core.generator_schema(core.str_schema())
        serializer = core.plain_serializer_function_ser_schema(iter, return_schema=names)
        return core.is_instance_schema(cls, serialization=serializer)

    @classmethod
    def cpu(cls) -> "Devices":
        """Build the one device that has no ordinal."""
        return cls("cpu", range(1))

    @classmethod
    def from_names(cls, names: Sequence[str]) -> "Devices":
        """Build devices from names such as `cuda:1`, all of one kind.

        Raises:
            ValueError: if the names are of several kinds, or no names of devices.

        """
        kinds = {name.partition(":")[0] for name in names}
        if len(kinds) > 1:
            raise ValueError(f"expected devices of one kind, got {', '.join(names)}")
        kind = kinds.pop() if kinds else "cuda"
        return cls.of(kind, [int(name.partition(":")[2] or 0) for name in names])

    def __len__(self) -> int:
        return len(self.ordinals)

    def __getitem__(self, part: slice) -> "Devices":
        whole = part.indices(len(self)) == (0, len(self), 1)
        return self if whole else Devices.of(self.kind, self.ordinals[part])

    def __iter__(self) -> Iterator[str]:
        return (self._name(ordinal) for ordinal in self.ordinals)

    def __str__(self) -> str:
        """Write a short form: `cuda:0`, `cuda:0–6`, or `cuda:2, cuda:0`; nine and more are cut short."""
        if isinstance(self.ordinals, range) and len(self) > 1:
            return f"{self.kind}:{self.ordinals[0]}–{self.ordinals[-1]}"
        if isinstance(self.ordinals, Tiled) and len(self) > 8:
            return f"{Devices(self.kind, self.ordinals.pattern)} ×{self.ordinals.times}"
        if len(self) > 8:
            return f"{', '.join(self[:4])}, ... {self.name(-1)} ({len(self)} devices)"
        return ", ".join(self)

    def name(self, index: int) -> str:
        """Name the device at a position, such as `cuda:3`."""
        return self._name(self.ordinals[index])

    def _name(self, ordinal: int) -> str:
        return "cpu" if self.kind == "cpu" else f"{self.kind}:{ordinal}"

    def without(self, taken: "Iterable[Devices]") -> "Devices":
        """Leave out devices that were taken in this order; those that are left are idle."""
        parts = list(taken)
        stops = list(accumulate(map(len, parts), initial=0))
        if all(self[start:stop] == part for (start, stop), part in zip(pairwise(stops), parts, strict=True)):
            return self[stops[-1] :]
        ordinals = chain.from_iterable(part.ordinals for part in parts)
        waited_for = next(ordinals, None)
        left = []
        for ordinal in self.ordinals:
            if ordinal == waited_for:
                waited_for = next(ordinals, None)
            else:
                left.append(ordinal)
        # what was seen may lie elsewhere than asked, as a module's own devices do; then it is counted
        return Devices.of(self.kind, left) if waited_for is None else self[stops[-1] :]

    def tiled(self, times: int) -> "Devices":
        """Take these devices several times over, as equal nodes do."""
        if times == 1 or not self.ordinals:
            return self
        ordinals = self.ordinals
        if isinstance(ordinals, Tiled):
            return Devices(self.kind, Tiled(ordinals.pattern, ordinals.times * times))
        return Devices(self.kind, Tiled(ordinals, times))


def joined(parts: Iterable[Devices]) -> Devices:
    """Put devices of one kind behind each other; there is at least one part."""
    first, *others = parts
    if not others:
        return first
    return Devices.of(first.kind, [ordinal for part in (first, *others) for ordinal in part.ordinals])


def _compact(ordinals: Sequence[int]) -> Sequence[int]:
    if isinstance(ordinals, Tiled):
        return ordinals
    if not ordinals:
        return range(0)
    if isinstance(ordinals, range) and ordinals.step == 1:
        return ordinals
    run = range(ordinals[0], ordinals[0] + len(ordinals))
    if all(got == want for got, want in zip(ordinals, run, strict=True)):
        return run
    return _tiles(tuple(ordinals))


def _tiles(ordinals: tuple[int, ...]) -> Sequence[int]:
    """Find the shortest pattern that these ordinals repeat, if they do."""
    for width in range(1, len(ordinals) // 2 + 1):
        pattern, times = ordinals[:width], len(ordinals) // width
        if width * times == len(ordinals) and pattern * times == ordinals:
            return Tiled(_compact(pattern), times)
    return ordinals

"""Names of devices, kept by range so that a hundred thousand of them cost what eight do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Devices:
    """Some devices of one kind, in replica order: `Devices.of("cuda", [0, 1, 2])`.

    `ordinals` is a range wherever the ordinals are consecutive and a tuple elsewhere, so equal devices
    compare equal.
    """

    kind: str
    ordinals: Sequence[int]

    @classmethod
    def of(cls, kind: str, ordinals: Sequence[int]) -> "Devices":
        """Build the devices of `kind` with these ordinals, in this order."""
        return cls(kind, _compact(ordinals))

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
        return Devices.of(self.kind, self.ordinals[part])

    def __iter__(self) -> Iterator[str]:
        return (self._name(ordinal) for ordinal in self.ordinals)

    def __str__(self) -> str:
        """Write a short form: `cuda:0`, `cuda:0–6`, or `cuda:2, cuda:0`; nine and more are cut short."""
        if isinstance(self.ordinals, range) and len(self) > 1:
            return f"{self.kind}:{self.ordinals[0]}–{self.ordinals[-1]}"
        if len(self) > 8:
            return f"{', '.join(self[:4])}, ... {self.name(-1)} ({len(self)} devices)"
        return ", ".join(self)

    def name(self, index: int) -> str:
        """Name the device at a position, such as `cuda:3`."""
        return self._name(self.ordinals[index])

    def _name(self, ordinal: int) -> str:
        return "cpu" if self.kind == "cpu" else f"{self.kind}:{ordinal}"


def _compact(ordinals: Sequence[int]) -> Sequence[int]:
    if not ordinals:
        return range(0)
    if isinstance(ordinals, range) and ordinals.step == 1:
        return ordinals
    run = range(ordinals[0], ordinals[0] + len(ordinals))
    return run if all(got == want for got, want in zip(ordinals, run, strict=True)) else tuple(ordinals)

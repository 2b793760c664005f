"""What the ranks of a program did: the collectives and peaks of each, ranks that did the same together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dpdemo.sizes import size

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = "dpdemo.ranks/1"


@dataclass(frozen=True)
class Collective:
    """The calls of one collective by one rank; `num_bytes` is the sum over its tensors."""

    name: str
    count: int
    num_bytes: int


@dataclass(frozen=True)
class RankResult:
    """One rank: its exit code, its collectives, and what it held on each GPU at its peak."""

    rank: int
    exit_code: int
    collectives: tuple[Collective, ...]
    peak_bytes: dict[str, int]


@dataclass(frozen=True)
class RanksResult:
    """What a program did as ranks of torch.distributed."""

    program: str
    arguments: tuple[str, ...]
    ranks: tuple[RankResult, ...]
    problem: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"schema": SCHEMA, **asdict(self)}

    def lines(self) -> Iterator[str]:
        """Yield the report, line by line."""
        num = len(self.ranks)
        yield f"Ran on {num} rank{'s' * (num != 1)}: {self.program}"
        if not any(rank.collectives for rank in self.ranks):
            yield "No rank made a collective: the program never used torch.distributed."
        for ranks, collectives in self._alike():
            where = f"Rank {ranks[0]}" if len(ranks) == 1 else f"Ranks {', '.join(map(str, ranks))} each"
            made = [f"{one.name} {one.count} ({size(one.num_bytes)})" for one in collectives]
            yield f"{where}: {', '.join(made) or 'no collective'}"
        peaks: dict[str, int] = {}
        for rank in self.ranks:  # two ranks on one GPU add up
            for device, held in rank.peak_bytes.items():
                peaks[device] = peaks.get(device, 0) + held
        if peaks:
            yield "Peak: " + ", ".join(f"{device} {size(held)}" for device, held in sorted(peaks.items()))

    def _alike(self) -> list[tuple[list[int], tuple[Collective, ...]]]:
        groups: dict[tuple[Collective, ...], list[int]] = {}
        for rank in self.ranks:
            groups.setdefault(rank.collectives, []).append(rank.rank)
        return [(ranks, collectives) for collectives, ranks in groups.items()]

"""The ranks of a program: rows, steps, samples, collectives and peaks of each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dpdemo.results.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpdemo.results.formats import Row
    from dpdemo.results.rankmistakes import Mistake


@dataclass(frozen=True)
class Collective:
    """The calls of one collective by one rank; `num_bytes` is the sum over its tensors."""

    name: str
    count: int
    num_bytes: int


@dataclass(frozen=True)
class RankModel:
    """A module that is trained by several ranks, on one; `shapes` counts forward calls by their shapes."""

    name: str
    at: str
    forwards: int
    backwards: int
    steps: int
    shapes: dict[str, int]
    wrapper: str = "DistributedDataParallel"


@dataclass(frozen=True)
class RankSamples:
    """The samples that one rank drew from a DataLoader, in all epochs."""

    at: str
    epochs: int
    drawn: int
    length: int | None


@dataclass(frozen=True)
class Coverage:
    """The samples of a data set that all ranks together drew in the first epoch of a DataLoader."""

    at: str
    length: int
    drawn: int
    num_repeated: int
    num_left_out: int


@dataclass(frozen=True)
class RankResult:
    """One rank: its exit code, its collectives, and what it held on each GPU at its peak."""

    rank: int
    exit_code: int
    collectives: tuple[Collective, ...]
    peak_bytes: dict[str, int]
    models: tuple[RankModel, ...] = ()
    samples: tuple[RankSamples, ...] = ()


@dataclass(frozen=True)
class RanksData(Report):
    """The run of a program as ranks of torch.distributed; `problem` tells why they were stopped."""

    SCHEMA: ClassVar[str] = "dpdemo.ranks/1"
    TITLE: ClassVar[str] = "dpdemo exec --ranks"
    columns: ClassVar[tuple[str, ...]] = ("rank", "exit_code", "collective", "count", "bytes")
    program: str
    arguments: tuple[str, ...]
    ranks: tuple[RankResult, ...]
    problem: tuple[str, ...] = ()
    mistakes: tuple[Mistake, ...] = ()
    coverage: tuple[Coverage, ...] = ()

    def data(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)

    def each_row(self) -> Iterator[Row]:
        """Yield a row for each rank and collective."""
        for rank in self.ranks:
            for one in rank.collectives:
                yield rank.rank, rank.exit_code, one.name, one.count, one.num_bytes

    def peaks(self) -> dict[str, int]:
        """Return the peak of each GPU; those of two ranks on one GPU add up."""
        found: dict[str, int] = {}
        for rank in self.ranks:
            for device, held in rank.peak_bytes.items():
                found[device] = found.get(device, 0) + held
        return dict(sorted(found.items(), key=lambda item: (len(item[0]), item[0])))

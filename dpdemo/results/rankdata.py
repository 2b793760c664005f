"""The parts of a report of ranks: models, samples, collectives and peaks of each."""

from dataclasses import dataclass


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

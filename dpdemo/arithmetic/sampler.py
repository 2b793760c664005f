"""The rule of torch's DistributedSampler: which rank draws which samples, and which are drawn twice or never.

The sampler pads the epoch's order with its own beginning until the ranks divide it, or with its `drop_last`
cuts the tail off, and gives rank r the positions r, r + ranks, r + 2·ranks and so on
(`torch/utils/data/distributed.py`, DistributedSampler.__init__ and __iter__). So position p holds sample
p mod data_size. A DataLoader drops the last positions, so the drawn samples are a prefix.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from dpdemo.arithmetic.chunk import Split


class Visit(NamedTuple):
    """One draw of a sample: by which rank, in which batch (1-based), as which row of it."""

    rank: int
    batch: int
    row: int


class Epoch(ABC):
    """Distribution of `data_size` samples over ranks; the drawn samples are a prefix of the epoch's order.

    `full` is how the ranks share a full
    batch, `last` how they share the short one at the end; None where there is none.
    """

    __slots__ = ()
    data_size: int
    full: Split
    last: Split | None
    num_full_batches: int

    @property
    def num_batches(self) -> int:
        """Batches of each rank, and so optimizer steps."""
        return self.num_full_batches + (self.last is not None)

    @property
    def drawn(self) -> int:
        """Samples drawn by all ranks together, repeats included."""
        rest = self.last.batch_size if self.last else 0
        return self.num_full_batches * self.full.batch_size + rest

    @property
    def num_repeated(self) -> int:
        """Number of draws that repeat a sample."""
        return max(0, self.drawn - self.data_size)

    @property
    def num_dropped(self) -> int:
        """Number of samples that no rank draws."""
        return max(0, self.data_size - self.drawn)

    def repeated(self) -> range:
        """Name the samples that are drawn more than once, as positions in the epoch's order."""
        return range(min(self.num_repeated, self.data_size))

    def dropped(self) -> range:
        """Name the samples that are never drawn, as positions in the epoch's order."""
        return range(self.data_size - self.num_dropped, self.data_size)

    @abstractmethod
    def positions(self, rank: int) -> Iterator[int]:
        """Yield what a rank draws, as positions in the epoch's order: the samples themselves, unshuffled."""

    @abstractmethod
    def visits(self, position: int) -> Iterator[Visit]:
        """Yield each time that the sample at this position of the epoch's order is drawn."""


@dataclass(frozen=True, slots=True)
class DistributedEpoch(Epoch):
    """An epoch over ranks that draw `drawn_per_rank` samples each, in batches of `batch_size`."""

    data_size: int
    num_ranks: int
    batch_size: int
    drawn_per_rank: int

    @property
    def num_full_batches(self) -> int:  # type: ignore[override]  # read-only, as the dataclass is
        """Full batches of each rank."""
        return self.drawn_per_rank // self.batch_size

    @property
    def full(self) -> Split:  # type: ignore[override]
        """The same rows for each rank."""
        return self._equal(self.batch_size)

    @property
    def last(self) -> Split | None:  # type: ignore[override]
        """The same rows for each rank, fewer than in a full batch."""
        rest = self.drawn_per_rank % self.batch_size
        return self._equal(rest) if rest else None

    def _equal(self, rows: int) -> Split:
        chunks = tuple((rank, rows) for rank in range(self.num_ranks))
        return Split(rows * self.num_ranks, self.num_ranks, chunks)

    def positions(self, rank: int) -> Iterator[int]:
        """Yield what a rank draws, as positions in the epoch's order: the samples themselves, unshuffled."""
        last = rank + self.drawn_per_rank * self.num_ranks
        return (position % self.data_size for position in range(rank, last, self.num_ranks))

    def visits(self, position: int) -> Iterator[Visit]:
        """Yield each time that the sample at this position of the epoch's order is drawn."""
        for place in range(position, self.drawn, self.data_size):
            turn, rank = divmod(place, self.num_ranks)
            batch, row = divmod(turn, self.batch_size)
            yield Visit(rank, batch + 1, row)


def distribute(
    data_size: int,
    num_ranks: int,
    batch_size: int,
    *,
    drop_last: bool = False,
    sampler_drop_last: bool = False,
) -> DistributedEpoch:
    """Distribute an epoch by DistributedSampler's rule.

    Args:
        data_size: samples in the dataset.
        num_ranks: ranks that share it.
        batch_size: rows of a full batch on one rank.
        drop_last: the DataLoader's: each rank leaves out a last batch that is not full.
        sampler_drop_last: the sampler's: the tail that the ranks do not divide is left out, not padded.

    Raises:
        ValueError: unless all three numbers are 1 or more.

    """
    for name, number in (("data size", data_size), ("rank", num_ranks), ("row per batch", batch_size)):
        if number < 1:
            raise ValueError(f"expected 1 {name} or more, got {number}")
    samples = samples_per_rank(data_size, num_ranks, sampler_drop_last=sampler_drop_last)
    drawn = samples // batch_size * batch_size if drop_last else samples
    return DistributedEpoch(data_size, num_ranks, batch_size, drawn)


def samples_per_rank(data_size: int, num_ranks: int, *, sampler_drop_last: bool) -> int:
    """Count what the sampler gives each rank."""
    return data_size // num_ranks if sampler_drop_last else -(-data_size // num_ranks)

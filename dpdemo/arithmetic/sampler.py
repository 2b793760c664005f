"""Which device or rank gets which samples of an epoch, and which are drawn twice or never.

torch's DistributedSampler pads the epoch's order with its own beginning until the ranks divide it, or with
its `drop_last` cuts the tail off, and gives rank r the positions r, r + ranks, r + 2·ranks and so on
(`torch/utils/data/distributed.py`, DistributedSampler.__init__ and __iter__). So position p holds sample
p mod data_size. A DataLoader drops the last positions, so the drawn samples are a prefix.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from dpdemo.arithmetic.chunk import Split


class Visit(NamedTuple):
    """One draw of a sample: by which rank, in which batch (1-based), as which row of it."""

    rank: int
    batch: int
    row: int


@dataclass(frozen=True, slots=True)
class Epoch:
    """Distribution of `data_size` samples over the GPUs of DataParallel or over ranks.

    The drawn samples are a prefix of the epoch's order, repeated where it is too short. `full` is how a full
    batch is shared, `last` how the short one at the end is; None where there is none. A rank gets consecutive
    rows of each batch, or with `in_turn` every n-th position of n ranks.
    """

    data_size: int
    full: Split
    num_full_batches: int
    last: Split | None
    in_turn: bool = False

    def batches(self) -> Iterator[tuple[int, int, Split]]:
        """Yield the batches that are shared alike: the number of the first (1-based), how many, how."""
        if self.num_full_batches:
            yield 1, self.num_full_batches, self.full
        if self.last is not None:
            yield self.num_batches, 1, self.last

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

    def visits(self, position: int) -> Iterator[Visit]:
        """Yield each time that the sample at this position of the epoch's order is drawn."""
        for place in range(position, self.drawn, self.data_size):
            number, row = divmod(place, self.full.batch_size)
            if self.in_turn:
                row, rank = divmod(row, self.full.num_devices)
            else:
                ends = list(accumulate(self._split(number).rows()))
                rank = next(rank for rank, end in enumerate(ends) if row < end)
                row -= ends[rank - 1] if rank else 0
            yield Visit(rank, number + 1, row)

    def _split(self, number: int) -> Split:
        """Return how a batch is shared, counted from 0."""
        return self.last if self.last and number == self.num_full_batches else self.full


def distribute(
    data_size: int,
    num_ranks: int,
    batch_size: int,
    *,
    drop_last: bool = False,
    sampler_drop_last: bool = False,
) -> Epoch:
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
    num_full, rest = divmod(samples, batch_size)
    last = _equal(num_ranks, rest) if rest and not drop_last else None
    return Epoch(data_size, _equal(num_ranks, batch_size), num_full, last, in_turn=True)


def _equal(num_ranks: int, rows: int) -> Split:
    return Split(rows * num_ranks, num_ranks, tuple((rank, rows) for rank in range(num_ranks)))


def samples_per_rank(data_size: int, num_ranks: int, *, sampler_drop_last: bool) -> int:
    """Count what the sampler gives each rank."""
    return data_size // num_ranks if sampler_drop_last else -(-data_size // num_ranks)

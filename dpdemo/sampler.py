"""The rule of torch's DistributedSampler: which rank draws which samples, and which are drawn twice or never.

The sampler pads the epoch's order with its own beginning until the ranks divide it, or with its `drop_last`
cuts the tail off, and gives rank r the positions r, r + ranks, r + 2·ranks and so on
(`torch/utils/data/distributed.py`, DistributedSampler.__init__ and __iter__). So position p holds sample
p mod data_size, and whatever a DataLoader then leaves out are the last positions: what is drawn is a prefix.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Visit(NamedTuple):
    """One time that a sample is drawn: by which rank, in which batch (1-based), as which row of it."""

    rank: int
    batch: int
    row: int


@dataclass(frozen=True, slots=True)
class DistributedEpoch:
    """An epoch of `data_size` samples over ranks that draw `drawn_per_rank` each, in batches of `batch_size`.

    Stored by count, so that a hundred thousand ranks cost what eight do.
    """

    data_size: int
    num_ranks: int
    batch_size: int
    samples_per_rank: int
    drawn_per_rank: int

    @property
    def num_full_batches(self) -> int:
        """Full batches of each rank."""
        return self.drawn_per_rank // self.batch_size

    @property
    def rest(self) -> int:
        """Rows of each rank's short last batch; 0 when there is none."""
        return self.drawn_per_rank % self.batch_size

    @property
    def drawn(self) -> int:
        """Samples drawn by all ranks together, repeats included."""
        return self.drawn_per_rank * self.num_ranks

    @property
    def num_repeated(self) -> int:
        """How often a sample was drawn that had been drawn before."""
        return max(0, self.drawn - self.data_size)

    @property
    def num_dropped(self) -> int:
        """How many samples no rank draws."""
        return max(0, self.data_size - self.drawn)

    def repeated(self) -> range:
        """Name the samples that are drawn more than once, as positions in the epoch's order."""
        return range(min(self.num_repeated, self.data_size))

    def dropped(self) -> range:
        """Name the samples that are never drawn, as positions in the epoch's order."""
        return range(self.data_size - self.num_dropped, self.data_size)

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
    for name, number in (("data size", data_size), ("rank", num_ranks), ("row a batch", batch_size)):
        if number < 1:
            raise ValueError(f"expected 1 {name} or more, got {number}")
    samples = data_size // num_ranks if sampler_drop_last else -(-data_size // num_ranks)
    drawn = samples // batch_size * batch_size if drop_last else samples
    return DistributedEpoch(data_size, num_ranks, batch_size, samples, drawn)

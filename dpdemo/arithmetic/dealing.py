"""Unequal shares for ranks: which rank draws which samples of an epoch, when each batch is cut by weights.

torch has no sampler for this. Here a step takes the next rows of the epoch's order, as DataParallel's batch
does, and each rank its chunk of them: so both train on the same batches. All ranks must take part in every
step. So where a short last batch has no row for one of them, samples are repeated from the beginning until
the smallest share of a full batch is a row; with the sampler's `drop_last` that batch is left out instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dpdemo.arithmetic.chunk import Split
from dpdemo.arithmetic.sampler import Epoch, Visit
from dpdemo.arithmetic.weights import split_by_chunks


@dataclass(frozen=True, slots=True)
class DealtEpoch(Epoch):
    """An epoch whose batches are shared as `full` says, and the short one at its end as `last` says."""

    data_size: int
    full: Split
    num_full_batches: int
    last: Split | None

    def positions(self, rank: int) -> Iterator[int]:
        """Yield what a rank draws, as positions in the epoch's order: the samples themselves, unshuffled."""
        for start, split, count in self._stretches():
            before, rows_here = sum(split.rows()[:rank]), split.rows()[rank]
            for batch in range(count):
                first = start + batch * split.batch_size + before
                yield from (position % self.data_size for position in range(first, first + rows_here))

    def visits(self, position: int) -> Iterator[Visit]:
        """Yield each time that the sample at this position of the epoch's order is drawn."""
        for place in range(position, self.drawn, self.data_size):
            number, rest = divmod(place, self.full.batch_size)
            split = self.full if number < self.num_full_batches else self.last
            assert split is not None  # noqa: S101 - what is drawn ends with it
            rank, row = _place_in(split, rest)
            yield Visit(rank, number + 1, row)

    def _stretches(self) -> Iterator[tuple[int, Split, int]]:
        yield 0, self.full, self.num_full_batches
        if self.last is not None:
            yield self.num_full_batches * self.full.batch_size, self.last, 1


def deal(
    data_size: int, full: Split, *, drop_last: bool = False, sampler_drop_last: bool = False
) -> DealtEpoch:
    """Deal an epoch to ranks that share a full batch as `full` says.

    Args:
        data_size: samples in the dataset.
        full: the rows of each rank in a full batch, 1 or more.
        drop_last: a last batch that is not full is left out.
        sampler_drop_last: one that would need repeated samples is.

    Raises:
        ValueError: for no samples at all, or a rank without a row.

    """
    if data_size < 1:
        raise ValueError(f"expected 1 sample or more, got {data_size}")
    if full.num_idle or not full.smallest:
        raise ValueError(f"expected a row for each rank, got {full.rows()}")
    number, rest = divmod(data_size, full.batch_size)
    last = None if drop_last or not rest else split_by_chunks(rest, full.sizes())
    if last is not None and last.num_idle:
        enough = -(-full.batch_size // full.smallest)
        last = None if sampler_drop_last else split_by_chunks(max(rest, enough), full.sizes())
    return DealtEpoch(data_size, full, number, last)


def _place_in(split: Split, row: int) -> tuple[int, int]:
    """Find which rank has a row of a batch, and as which of its own."""
    start = 0
    for rank, rows in split.chunks:
        if row < start + rows:
            return rank, row - start
        start += rows
    raise IndexError(f"expected a row below {split.batch_size}, got {row}")

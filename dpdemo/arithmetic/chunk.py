"""How a batch is cut into chunks, a chunk per device: what every split is made of, and torch.chunk's rule.

torch.chunk, and so `nn.DataParallel`, asks for chunks of ceil(size / chunks) rows and makes as many as that
takes, so the last one is short and, for some sizes, fewer chunks come out than were asked for
(`aten/src/ATen/native/TensorShape.cpp`, `chunk`; `torch/csrc/cuda/comm.cpp`, `scatter`, calls it). Unequal
splits have a rule of their own, in `weights.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring devices, `count` of them from number `first` on, that get a chunk of `rows` rows each."""

    first: int
    count: int
    rows: int


@dataclass(frozen=True, slots=True)
class Split:
    """A batch of `batch_size` rows over `num_devices`; a device that is in none of the runs is idle.

    Stored by count, so that a hundred thousand devices cost what eight do.
    """

    batch_size: int
    num_devices: int
    runs: tuple[Run, ...]

    @property
    def num_chunks(self) -> int:
        """How many devices get a chunk."""
        return sum(run.count for run in self.runs)

    @property
    def num_idle(self) -> int:
        """How many devices get no chunk at all."""
        return self.num_devices - self.num_chunks

    @property
    def largest(self) -> int:
        """Rows of the largest chunk."""
        return max(run.rows for run in self.runs)

    @property
    def smallest(self) -> int:
        """Rows of the shortest chunk."""
        return min(run.rows for run in self.runs)

    @property
    def is_even(self) -> bool:
        """Whether all chunks have the same number of rows."""
        return self.largest == self.smallest

    def sizes(self) -> tuple[int, ...]:
        """List the rows of every chunk, in device order; idle devices have none."""
        return tuple(run.rows for run in self.runs for _ in range(run.count))

    def used(self) -> tuple[int, ...]:
        """List the numbers of the devices that get a chunk, in order."""
        return tuple(number for run in self.runs for number in range(run.first, run.first + run.count))

    def rows(self) -> tuple[int, ...]:
        """List the rows of every device, in order: 0 for an idle one."""
        found = [0] * self.num_devices
        for number, size in zip(self.used(), self.sizes(), strict=True):
            found[number] = size
        return tuple(found)

    def idle(self) -> Iterator[range]:
        """Yield the numbers of the idle devices, neighbouring ones as one range."""
        start = 0
        for run in self.runs:
            if run.first > start:
                yield range(start, run.first)
            start = run.first + run.count
        if start < self.num_devices:
            yield range(start, self.num_devices)


def split_batch(batch_size: int, num_devices: int) -> Split:
    """Split `batch_size` rows over `num_devices` by torch.chunk's rule.

    An empty batch gives one empty chunk per device, as in torch.

    Raises:
        ValueError: for a negative batch size or fewer than one device.

    """
    expect_rows(batch_size)
    if num_devices < 1:
        raise ValueError(f"expected 1 or more devices, got {num_devices}")
    if batch_size == 0:
        return Split(0, num_devices, (Run(0, num_devices, 0),))
    chunk = -(-batch_size // num_devices)
    full, rest = divmod(batch_size, chunk)
    last = (Run(full, 1, rest),) if rest else ()
    return Split(batch_size, num_devices, (Run(0, full, chunk), *last))


def expect_rows(batch_size: int) -> None:
    """Check a number of rows.

    Raises:
        ValueError: if it is negative.

    """
    if batch_size < 0:
        raise ValueError(f"expected a batch size of 0 or more, got {batch_size}")


def even_batch_sizes_near(batch_size: int, num_devices: int) -> tuple[int, ...]:
    """List the nearest batch sizes, below and above, that fill every device equally with two or more rows.

    One row per device is left out: BatchNorm cannot train on a lone sample.
    """
    below = batch_size // num_devices * num_devices
    sizes = {max(below, 2 * num_devices), max(below + num_devices, 2 * num_devices)}
    if below == batch_size and below >= 2 * num_devices:
        sizes = {batch_size}
    return tuple(sorted(sizes))

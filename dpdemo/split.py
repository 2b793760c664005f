"""The split rule: how `torch.chunk`, and so `nn.DataParallel`, cuts a batch into chunks.

torch.chunk asks for chunks of ceil(size / chunks) rows and makes as many as that takes, so the last one is
short and, for some sizes, fewer chunks come out than were asked for
(`aten/src/ATen/native/TensorShape.cpp`, `chunk`; `torch/csrc/cuda/comm.cpp`, `scatter`, calls it).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Split:
    """A batch of `batch_size` rows over `num_devices`: equal chunks, then at most one that differs.

    Stored by count, so that a hundred thousand devices cost what eight do.
    """

    batch_size: int
    num_devices: int
    chunk: int
    num_chunks: int
    last_chunk: int

    @property
    def num_idle(self) -> int:
        """How many devices get no chunk at all."""
        return self.num_devices - self.num_chunks

    @property
    def is_even(self) -> bool:
        """Whether all chunks have the same number of rows."""
        return self.last_chunk == self.chunk

    def sizes(self) -> tuple[int, ...]:
        """List the rows of every chunk, in device order."""
        return (self.chunk,) * (self.num_chunks - 1) + (self.last_chunk,)

    def runs(self) -> tuple[tuple[int, int, int], ...]:
        """Group neighbouring chunks of one size: (first chunk, how many, rows of each)."""
        if self.is_even:
            return ((0, self.num_chunks, self.chunk),)
        return ((0, self.num_chunks - 1, self.chunk), (self.num_chunks - 1, 1, self.last_chunk))


def split_batch(batch_size: int, num_devices: int) -> Split:
    """Split `batch_size` rows over `num_devices` by torch.chunk's rule.

    An empty batch gives one empty chunk a device, as in torch.

    Raises:
        ValueError: for a negative batch size or fewer than one device.

    """
    if batch_size < 0:
        raise ValueError(f"expected a batch size of 0 or more, got {batch_size}")
    if num_devices < 1:
        raise ValueError(f"expected 1 or more devices, got {num_devices}")
    if batch_size == 0:
        return Split(0, num_devices, chunk=0, num_chunks=num_devices, last_chunk=0)
    chunk = -(-batch_size // num_devices)
    num_chunks = -(-batch_size // chunk)
    last_chunk = batch_size - (num_chunks - 1) * chunk
    return Split(batch_size, num_devices, chunk, num_chunks, last_chunk)


def even_batch_sizes_near(batch_size: int, num_devices: int) -> tuple[int, ...]:
    """List the nearest batch sizes, below and above, that fill every device equally with two or more rows.

    One row a device is left out: BatchNorm cannot train on a lone sample.
    """
    below = batch_size // num_devices * num_devices
    sizes = {max(below, 2 * num_devices), max(below + num_devices, 2 * num_devices)}
    if below == batch_size and below >= 2 * num_devices:
        sizes = {batch_size}
    return tuple(sorted(sizes))

"""Cut a batch into chunks, one per device: the split, and torch.chunk's rule.

torch.chunk, and so `nn.DataParallel`, asks for chunks of ceil(size / chunks) rows and makes as many as that
takes, so the last one is short and, for some sizes, fewer chunks come out than were asked for
(`aten/src/ATen/native/TensorShape.cpp`, `chunk`; `torch/csrc/cuda/comm.cpp`, `scatter`, calls it).
"""

from typing import NamedTuple


class Split(NamedTuple):
    """A batch of `batch_size` rows over `num_devices`: the chunks as (device, rows), in device order.

    A device without a chunk is idle.
    """

    batch_size: int
    num_devices: int
    chunks: tuple[tuple[int, int], ...]

    @property
    def num_chunks(self) -> int:
        """Number of devices with a chunk."""
        return len(self.chunks)

    @property
    def num_idle(self) -> int:
        """Number of devices without a chunk."""
        return self.num_devices - self.num_chunks

    @property
    def largest(self) -> int:
        """Rows of the largest chunk."""
        return max(self.sizes())

    @property
    def smallest(self) -> int:
        """Rows of the shortest chunk."""
        return min(self.sizes())

    @property
    def is_even(self) -> bool:
        """Whether all chunks have the same number of rows."""
        return self.largest == self.smallest

    def sizes(self) -> tuple[int, ...]:
        """List the rows of every chunk, in device order; idle devices have none."""
        return tuple(rows for _, rows in self.chunks)

    def used(self) -> tuple[int, ...]:
        """List the numbers of the devices that get a chunk, in order."""
        return tuple(device for device, _ in self.chunks)

    def rows(self) -> tuple[int, ...]:
        """List the rows of every device, in order: 0 for an idle one."""
        found = dict(self.chunks)
        return tuple(found.get(device, 0) for device in range(self.num_devices))

    def idle(self) -> tuple[int, ...]:
        """List the numbers of the idle devices, in order."""
        used = set(self.used())
        return tuple(device for device in range(self.num_devices) if device not in used)


def split_batch(batch_size: int, num_devices: int) -> Split:
    """Split `batch_size` rows over `num_devices` by torch.chunk's rule.

    An empty batch gives one empty chunk per device, as in torch.

    Raises:
        ValueError: for a negative batch size or fewer than one device.

    """
    if batch_size < 0:
        raise ValueError(f"expected a batch size of 0 or more, got {batch_size}")
    if num_devices < 1:
        raise ValueError(f"expected 1 or more devices, got {num_devices}")
    if batch_size == 0:
        return Split(0, num_devices, tuple((device, 0) for device in range(num_devices)))
    chunk = -(-batch_size // num_devices)
    starts = range(0, batch_size, chunk)
    chunks = tuple((device, min(chunk, batch_size - start)) for device, start in enumerate(starts))
    return Split(batch_size, num_devices, chunks)


def even_batch_sizes_near(batch_size: int, num_devices: int) -> tuple[int, ...]:
    """List the nearest batch sizes, below and above, that fill every device equally with two or more rows.

    One row per device is left out: BatchNorm cannot train on a lone sample.
    """
    below = batch_size // num_devices * num_devices
    sizes = {max(below, 2 * num_devices), max(below + num_devices, 2 * num_devices)}
    if below == batch_size and below >= 2 * num_devices:
        sizes = {batch_size}
    return tuple(sorted(sizes))

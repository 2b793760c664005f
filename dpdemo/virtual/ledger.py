"""What each virtual GPU holds and what was copied to and from it.

Bytes are counted by storage: views and aliases of one storage count once, and the storage's bytes come back
the moment it dies. Each storage carries its own `Allocation` (see `labels.py`); when the storage goes, Python
drops the allocation and its `__del__` gives the bytes back. No weak references, no registry to keep in step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# The CUDA caching allocator rounds every request up to a multiple of 512 bytes: `kMinBlockSize` in
# c10/cuda/CUDACachingAllocator.cpp (2.13: c10/core/AllocatorConfig.h).
BLOCK_BYTES = 512


def rounded(num_bytes: int) -> int:
    """Round a request up to the caching allocator's block size."""
    return -(-num_bytes // BLOCK_BYTES) * BLOCK_BYTES


class Allocation:
    """One storage's place on a virtual GPU: the label that says where its tensors live."""

    __slots__ = ("index", "ledger", "nbytes", "requested")

    def __init__(self, ledger: Ledger, index: int, requested: int) -> None:
        self.ledger = ledger
        self.index = index
        self.requested = requested
        self.nbytes = -(-requested // BLOCK_BYTES) * BLOCK_BYTES
        ledger.allocate(index, self.nbytes)

    def resize(self, requested: int) -> None:
        """Follow a storage that changed its size in place (`resize_`, `out=`)."""
        nbytes = rounded(requested)
        self.requested = requested
        self.ledger.allocate(self.index, nbytes - self.nbytes)
        self.nbytes = nbytes

    def __del__(self) -> None:
        self.ledger.live[self.index] -= self.nbytes


@dataclass
class BytesMoved:
    """Bytes copied between the host and the GPUs, and between GPUs, and how many copies of each kind."""

    host_to_device: int = 0
    device_to_device: int = 0
    device_to_host: int = 0
    num_host_to_device: int = 0
    num_device_to_device: int = 0
    num_device_to_host: int = 0


@dataclass
class Ledger:
    """Live and peak bytes of each GPU, and the bytes moved; one for each `virtual_gpus` block."""

    num_gpus: int
    live: list[int] = field(init=False)
    peak: list[int] = field(init=False)
    moved: BytesMoved = field(default_factory=BytesMoved)
    moved_between: dict[tuple[int | None, int | None], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.live = [0] * self.num_gpus
        self.peak = [0] * self.num_gpus

    def allocate(self, index: int, nbytes: int) -> None:
        """Take `nbytes` on GPU `index`."""
        live = self.live[index] + nbytes
        self.live[index] = live
        self.peak[index] = max(self.peak[index], live)

    def reset_peak(self, index: int) -> None:
        """Let the peak of GPU `index` start again from what is live now."""
        self.peak[index] = self.live[index]

    def transfer(self, source: int | None, target: int | None, nbytes: int) -> None:
        """Count a copy of `nbytes` from one device to another; None is the host."""
        moved = self.moved
        if source is None:
            moved.host_to_device += nbytes
            moved.num_host_to_device += 1
        elif target is None:
            moved.device_to_host += nbytes
            moved.num_device_to_host += 1
        else:
            moved.device_to_device += nbytes
            moved.num_device_to_device += 1
        pair = (source, target)
        self.moved_between[pair] = self.moved_between.get(pair, 0) + nbytes

"""The purposes of a storage, and the sizes of blocks and segments."""

from enum import IntEnum

# The CUDA caching allocator rounds every request up to a multiple of 512 bytes: `kMinBlockSize` in
# c10/cuda/CUDACachingAllocator.cpp (2.13: c10/core/AllocatorConfig.h).
BLOCK_BYTES = 512
# kSmallSize, kSmallBuffer, kMinLargeAlloc, kLargeBuffer and kRoundLarge there
SMALL_BYTES, _SMALL_SEGMENT = 2**20, 2 * 2**20
_LARGE, _MEDIUM_SEGMENT, _ROUNDING = 10 * 2**20, 20 * 2**20, 2 * 2**20


class Kind(IntEnum):
    """The purpose of a storage; see `kinds.py` for the event that shows each."""

    PARAMETER = 0
    GRADIENT = 1
    OPTIMIZER_STATE = 2
    BUFFER = 3
    INPUT = 4
    ACTIVATION = 5
    REPLICA = 6
    GATHERED = 7
    TEMPORARY = 8
    SCRATCH = 9
    BUCKET = 10
    GATHERED_BLOCK = 11
    REMAINDER = 12


KIND_NAMES = (
    *("parameters", "gradients", "optimizer state", "buffers", "inputs", "activations"),
    *("replica copies", "gathered outputs", "temporaries", "cuDNN scratch"),
    *("gradient buckets", "gathered blocks", "block remainders"),
)


def rounded(num_bytes: int) -> int:
    """Round a request up to the caching allocator's block size."""
    return -(-num_bytes // BLOCK_BYTES) * BLOCK_BYTES


def segment_bytes(num_bytes: int) -> int:
    """Return how much the allocator asks the driver for, to have so many bytes (`get_allocation_size`)."""
    if num_bytes <= SMALL_BYTES:
        return _SMALL_SEGMENT
    return _MEDIUM_SEGMENT if num_bytes < _LARGE else -(-num_bytes // _ROUNDING) * _ROUNDING

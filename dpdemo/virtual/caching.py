"""The rules of CUDA's caching allocator: the memory it would reserve for a sequence of allocations.

PyTorch asks the driver for *segments*, cuts *blocks* from them, and keeps both for later. So a process holds
more than its tensors do: what is rounded up, and what lies between blocks. The rules are those of
`DeviceCachingAllocator` (c10/cuda/CUDACachingAllocator.cpp, 2.13) with its default settings:

- each stream has segments of its own, and a block goes back to the stream that it was taken on;
- requests of up to 1 MiB share segments of 2 MiB; those of up to 10 MiB segments of 20 MiB; larger ones have
  segments of their own, rounded up to 2 MiB (`get_allocation_size`);
- the smallest free block that suffices is taken, of equal ones the first (`get_free_block`);
- what is left of it is cut off if it is 512 bytes or more, among large ones if more than 1 MiB
  (`should_split`); free neighbours are joined (`try_merge_blocks`).

Not modelled: PyTorch gives unused segments back before it fails, so less memory may suffice.
"""

import bisect
from dataclasses import dataclass

from dpdemo.virtual.blocks import BLOCK_BYTES, SMALL_BYTES, segment_bytes


@dataclass(eq=False, slots=True)
class Block:
    """A part of a segment, in use or free, between its neighbours there."""

    address: int
    size: int
    is_small: bool  # whether its segment is one for small requests
    previous: "Block | None" = None
    following: "Block | None" = None
    is_free: bool = True
    requested: int = 0
    stream: int = 0


class CachingAllocator:
    """One GPU's allocator: what it reserved, and the most it ever did."""

    def __init__(self) -> None:
        self.segments: list[Block] = []  # the first block of each
        self.reserved_bytes = 0
        self._free: dict[tuple[int, bool], list[tuple[int, int]]] = {}  # (size, address), in order
        self._blocks: dict[int, Block] = {}  # free ones, by address
        self._next_address = 0

    def allocate(self, num_bytes: int, stream: int = 0) -> Block:
        """Take a block of at least so many bytes, a multiple of 512."""
        pool = stream, num_bytes <= SMALL_BYTES
        _, is_small = pool
        block = self._take_free(num_bytes, pool) or self._reserve(num_bytes, pool)
        left = block.size - num_bytes
        if left >= BLOCK_BYTES if is_small else left > SMALL_BYTES:
            self._cut(block, num_bytes)
        block.is_free, block.requested = False, num_bytes
        return block

    def free(self, block: Block) -> None:
        """Give a block back, and join it with free neighbours."""
        block.is_free = True
        before, after = block.previous, block.following
        if before is not None and before.is_free:
            self._drop(before)
            before.size += block.size
            before.following = after
            if after is not None:
                after.previous = before
            block = before
        if after is not None and after.is_free:
            self._drop(after)
            block.size += after.size
            block.following = after.following
            if after.following is not None:
                after.following.previous = block
        self._keep(block)

    def _take_free(self, num_bytes: int, pool: tuple[int, bool]) -> Block | None:
        free = self._free.get(pool, [])
        place = bisect.bisect_left(free, (num_bytes, 0))
        if place == len(free):
            return None
        _, address = free.pop(place)
        return self._blocks.pop(address)

    def _reserve(self, num_bytes: int, pool: tuple[int, bool]) -> Block:
        size = segment_bytes(num_bytes)
        stream, is_small = pool
        first = Block(self._next_address, size, is_small, stream=stream)
        self._next_address += size
        self.segments.append(first)
        self.reserved_bytes += size
        return first

    def _cut(self, block: Block, num_bytes: int) -> None:
        rest = Block(
            block.address + num_bytes, block.size - num_bytes, block.is_small, block, block.following
        )
        rest.stream = block.stream
        if block.following is not None:
            block.following.previous = rest
        block.following, block.size = rest, num_bytes
        self._keep(rest)

    def _keep(self, block: Block) -> None:
        pool = block.stream, block.is_small
        bisect.insort(self._free.setdefault(pool, []), (block.size, block.address))
        self._blocks[block.address] = block

    def _drop(self, block: Block) -> None:
        pool = self._free[block.stream, block.is_small]
        del pool[bisect.bisect_left(pool, (block.size, block.address))]
        del self._blocks[block.address]


class Recorder:
    """Follows all GPUs of a ledger, whose accounts tell it of each allocation."""

    def __init__(self, num_gpus: int) -> None:
        self._blocks: dict[int, tuple[int, Block]] = {}  # by birth, with their GPU
        self.allocators = [CachingAllocator() for _ in range(num_gpus)]

    def allocated(self, index: int, birth: int, num_bytes: int, stream: int = 0) -> None:
        """Note that the ledger's allocation number `birth` was made on a GPU."""
        block = self.allocators[index].allocate(num_bytes, stream)
        self._blocks[birth] = index, block

    def freed(self, birth: int) -> None:
        """Note that it was given back."""
        if birth in self._blocks:  # else it was made before this recorder was there
            index, block = self._blocks.pop(birth)
            self.allocators[index].free(block)

    def restart(self) -> None:
        """Begin again on empty cards, with what is live now allocated in the order in which it was made."""
        live, self._blocks = self._blocks, {}
        self.allocators = [CachingAllocator() for _ in self.allocators]
        for birth in sorted(live):
            index, block = live[birth]
            self._blocks[birth] = index, self.allocators[index].allocate(block.requested, block.stream)

    def hold(self, index: int, num_bytes: int) -> None:
        """Note a block that a GPU's allocator gives to a library, which keeps it."""
        self.allocators[index].allocate(num_bytes)

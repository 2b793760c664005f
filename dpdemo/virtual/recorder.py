"""The bytes that each GPU's caching allocator reserves.

The ledger's accounts tell their recorder, if they have one, of each allocation; the allocator's rules
(`caching.py`) say the rest.
"""

from dpdemo.virtual.caching import Block, CachingAllocator


class Recorder:
    """Follows all GPUs of a ledger."""

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

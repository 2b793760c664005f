"""The memory of each GPU over time: the bytes that its caching allocator reserves, and the live bytes.

The ledger's accounts tell their recorder, if they have one, of each allocation. Reserved bytes come from the
allocator's rules (`caching.py`); the events themselves are kept only where they are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dpdemo.virtual.caching import CachingAllocator

if TYPE_CHECKING:
    from dpdemo.virtual.caching import Block


class Event(NamedTuple):
    """A block taken or given back: the phase of the program, and the bytes that were live afterwards."""

    phase: str
    live_bytes: int


@dataclass
class Recorder:
    """Follows all GPUs of a ledger; it keeps the events too where `keeps_events` is set."""

    num_gpus: int
    keeps_events: bool = False
    allocators: list[CachingAllocator] = field(init=False)
    events: list[list[Event]] = field(init=False)
    _blocks: dict[int, tuple[int, Block]] = field(default_factory=dict)  # by birth, with their GPU
    _live: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.allocators = [CachingAllocator() for _ in range(self.num_gpus)]
        self._live = [0] * self.num_gpus
        self.forget_events()

    def see_first(self, num_gpus: int) -> None:
        """Follow so many GPUs only; nothing was booked yet."""
        self.num_gpus = num_gpus
        self.__post_init__()

    def allocated(self, index: int, birth: int, num_bytes: int, phase: str) -> None:
        """Note that the ledger's allocation number `birth` was made on a GPU."""
        self._blocks[birth] = index, self.allocators[index].allocate(num_bytes)
        self._note(index, num_bytes, phase)

    def freed(self, index: int, birth: int, phase: str) -> None:
        """Note that it was given back."""
        _, block = self._blocks.pop(birth, (index, None))
        if block is not None:  # else it was made before this recorder was there
            self._note(index, -block.requested, phase)
            self.allocators[index].free(block)

    def restart(self) -> None:
        """Begin again on empty cards, with what is live now allocated in the order in which it was made."""
        live, self._blocks = self._blocks, {}
        self.__post_init__()
        for birth in sorted(live):
            index, block = live[birth]
            self.allocated(index, birth, block.requested, "")
        self.forget_events()

    def hold(self, index: int, num_bytes: int) -> None:
        """Note a block that a GPU's allocator gives to a library, which keeps it."""
        self.allocators[index].allocate(num_bytes)

    def forget_events(self) -> None:
        """Drop the events so far: those of a step that only warmed up."""
        self.events = [[] for _ in range(self.num_gpus)]

    def _note(self, index: int, change: int, phase: str) -> None:
        self._live[index] += change
        if self.keeps_events:
            self.events[index].append(Event(phase, self._live[index]))

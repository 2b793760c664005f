"""The events of each GPU's memory: for reserved bytes, pictures over time and snapshots.

The ledger tells its recorder, if it has one. Reserved bytes come from the allocator's rules (`caching.py`);
the events themselves are kept only where they are asked for.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dpdemo.virtual.caching import CachingAllocator

if TYPE_CHECKING:
    from types import FrameType

    from dpdemo.virtual.caching import Block

Frames = tuple[tuple[str, int, str], ...]
"""The code that asked for memory, innermost first: file, line and function."""

_MOST_FRAMES = 12
_OWN = ("dpdemo.", "torch.", "threading", "contextlib", "typer", "click")


class Event(NamedTuple):
    """A block taken ("alloc"), given back ("free") or refused ("oom").

    Besides its place and size it has what was live after it, what the program was doing, and who asked. The
    events of all GPUs are numbered together.
    """

    number: int
    action: str
    address: int
    size: int
    live_bytes: int
    phase: str
    frames: Frames


@dataclass
class Recorder:
    """Follows all GPUs of a ledger.

    `keeps_events` and `keeps_frames` say what is kept beside the sums; `max_events` of each GPU, all if None.
    """

    num_gpus: int
    keeps_events: bool = False
    keeps_frames: bool = False
    max_events: int | None = None
    is_programs: bool = False  # asked for by the program itself
    allocators: list[CachingAllocator] = field(init=False)
    events: list[deque[Event]] = field(init=False)
    _blocks: dict[int, tuple[int, Block]] = field(default_factory=dict)  # by birth, with their GPU
    _live: list[int] = field(init=False)
    _num_events: int = 0

    def __post_init__(self) -> None:
        self.allocators = [CachingAllocator() for _ in range(self.num_gpus)]
        self._live = [0] * self.num_gpus
        self.forget_events()

    def see_first(self, num_gpus: int) -> None:
        """Follow so many GPUs only; nothing was booked yet."""
        self.num_gpus = num_gpus
        for lists in (self.allocators, self.events, self._live):
            del lists[num_gpus:]

    def adopt(self, index: int, birth: int, num_bytes: int) -> None:
        """Take over an allocation that was made before this recorder was there."""
        self._blocks[birth] = index, self.allocators[index].allocate(num_bytes)
        self._live[index] += num_bytes

    def allocated(self, index: int, birth: int, num_bytes: int, phase: str) -> None:
        """Note that the ledger's allocation number `birth` was made on a GPU."""
        block = self.allocators[index].allocate(num_bytes)
        self._blocks[birth] = index, block
        if self.keeps_frames:
            block.frames = _users_frames(sys._getframe(2))
        self._live[index] += num_bytes
        self._note("alloc", index, block, phase)

    def freed(self, index: int, birth: int, phase: str) -> None:
        """Note that it was given back."""
        _, block = self._blocks.pop(birth, (index, None))
        if block is None:  # made before this recorder was there
            return
        self._live[index] -= block.requested
        self._note("free", index, block, phase)
        self.allocators[index].free(block)

    def refused(self, index: int, num_bytes: int, phase: str) -> None:
        """Note that a GPU had no room for so many bytes."""
        if self.keeps_events:
            self._add("oom", index, (0, num_bytes), phase, _users_frames(sys._getframe(2)))

    def restart(self) -> None:
        """Begin again on empty cards, with what is live now allocated in the order in which it was made."""
        live = self._blocks
        self.allocators = [CachingAllocator() for _ in range(self.num_gpus)]
        self._blocks, self._live = {}, [0] * self.num_gpus
        for birth in sorted(live):
            index, block = live[birth]
            again = self.allocators[index].allocate(block.requested)
            again.frames = block.frames
            self._blocks[birth] = index, again
            self._live[index] += block.requested
        self.forget_events()

    def hold(self, index: int, num_bytes: int) -> None:
        """Note a block that a GPU's allocator gives to a library, which keeps it."""
        self.allocators[index].allocate(num_bytes)

    def forget_events(self) -> None:
        """Drop the events so far: those of a step that only warmed up."""
        self.events = [deque(maxlen=self.max_events) for _ in range(self.num_gpus)]

    def _note(self, action: str, index: int, block: Block, phase: str) -> None:
        if self.keeps_events:
            self._add(action, index, (block.address, block.requested), phase, block.frames)

    def _add(self, action: str, index: int, place: tuple[int, int], phase: str, frames: Frames) -> None:
        self._num_events += 1
        self.events[index].append(Event(self._num_events, action, *place, self._live[index], phase, frames))


def _users_frames(frame: FrameType | None) -> Frames:
    """Return the frames that are neither ours nor PyTorch's, the innermost first."""
    found: list[tuple[str, int, str]] = []
    while frame is not None and len(found) < _MOST_FRAMES:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith(_OWN):
            code = frame.f_code
            found.append((code.co_filename, frame.f_lineno, code.co_qualname))
        frame = frame.f_back
    return tuple(found)

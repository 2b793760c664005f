"""Observe whether data sets draw random numbers, and from which state, in workers of a loader, too.

A forked worker has no notes: it writes into memory that it shares with the process that made it.
"""

import contextlib
import mmap
import random
import struct
import sys
import zlib
from typing import Any

import torch
from torch.utils.data import get_worker_info
from torch.utils.data._utils import fetch as fetchers

from dpdemo.ranks.observe.notes import Notes, never_raises
from dpdemo.ranks.observe.numbers import checksum

SOURCES = ("torch", "numpy", "random")
_ROW = struct.Struct(f"{len(SOURCES)}q")
_FETCHES, _WORKERS = 2, 64


class Board:
    """The states from which each worker of one pass drew random numbers first; 0 where it drew none."""

    now: "Board | None" = None
    """That of the pass that is under way, or about to start its workers."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, _ROW.size * _WORKERS)
        self.fetches = 0

    def note(self, before: tuple[int, ...]) -> None:
        """Keep the states that have changed since, if they are the first."""
        worker = get_worker_info()
        place = _ROW.size * (0 if worker is None else worker.id % _WORKERS)
        known = _ROW.unpack_from(self.memory, place)
        changed = (old if old != new else 0 for old, new in zip(before, states(), strict=True))
        _ROW.pack_into(self.memory, place, *(old or new for old, new in zip(known, changed, strict=True)))

    def states(self) -> dict[str, tuple[int, ...]]:
        """Return by library the states of all workers that drew from it."""
        rows = [_ROW.unpack_from(self.memory, _ROW.size * worker) for worker in range(_WORKERS)]
        found = {
            name: tuple(filter(None, row)) for name, row in zip(SOURCES, zip(*rows, strict=True), strict=True)
        }
        return {name: row for name, row in found.items() if row}


def states() -> tuple[int, ...]:
    """Return a checksum of the state of each library's global random numbers."""
    numpy: Any = getattr(sys.modules.get("numpy"), "random", None)  # which numpy imports when it is asked for
    return (
        checksum(torch.default_generator.get_state()) + 1,
        0 if numpy is None else _of_numpy(numpy.get_state(legacy=False)["state"]),
        hash(random.getstate()) or 1,
    )


def _of_numpy(state: dict[str, Any]) -> int:
    return zlib.crc32(state["key"].tobytes(), int(state["pos"])) + 1


def watch(notes: Notes) -> None:
    """Look at the first batches that each loader, or each of its workers, makes."""
    for kind in (fetchers._MapDatasetFetcher, fetchers._IterableDatasetFetcher):

        @notes.around(kind, "fetch", why="a data set may draw random numbers")
        def fetch(run: Any, /, self: Any, possibly_batched_index: Any) -> Any:
            board = Board.now
            if board is None or board.fetches >= _FETCHES:
                return run(self, possibly_batched_index)
            board.fetches += 1
            before: tuple[int, ...] = ()
            with contextlib.suppress(Exception):  # NumPy may have another generator
                before = states()
            result = run(self, possibly_batched_index)
            if before:
                never_raises(board.note)(before)
            return result

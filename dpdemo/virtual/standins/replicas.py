"""The replicas of one DataParallel call take turns, in device order.

`torch.nn.parallel.parallel_apply` starts one thread per replica and joins them all. Side by side they gain
little on a CPU, and lines printed by replicas would come in any order. So here `start()` returns when its
replica has finished, and the next one starts after it.

A replica may wait for another that has not started (a queue or a barrier between replicas, as in synchronised
batch normalisation). Then `start()` returns early and they run side by side from there on. Whether a replica
waits is judged from outside, since a lock cannot be asked who waits on it: see `_Watch`.
"""

from __future__ import annotations

import gc
import math
import queue
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType

_POLL_S = 0.002
_WAITING_S = 0.01  # this long on one instruction of a waiting function of the standard library: it waits
_IDLE_S = 0.25  # over this long it hardly wanted the processor: it waits, on a bare lock or by sleeping
_IDLE_SHARE = 0.2
_PATIENCE_S = 10.0  # a replica that spins until another comes can only be recognised by taking too long

_WAITING_FILES = {threading.__file__, queue.__file__}


class _Watch:
    """Judges whether a thread waits, from where it stands and from how much of the processor it wants."""

    def __init__(self, thread: threading.Thread) -> None:
        self.thread = thread
        self.began = self.moved_at = self.window_at = time.monotonic()
        self.place: tuple[CodeType, int] | None = None
        self.busy_at_window = self.busy_at_move = _busy_seconds(thread)

    def is_waiting(self) -> bool:
        """Look once; call it every few milliseconds."""
        now = time.monotonic()
        return self._stands_in_waiting_function(now) or self._is_idle(now) or now - self.began >= _PATIENCE_S

    def _stands_in_waiting_function(self, now: float) -> bool:
        place = _place_of(self.thread)
        if place is None:
            return False
        if place != self.place:
            self.place, self.moved_at, self.busy_at_move = place, now, _busy_seconds(self.thread)
        still = now - self.moved_at
        if place[0].co_filename not in _WAITING_FILES or still < _WAITING_S:
            return False
        busy = _busy_seconds(self.thread) - self.busy_at_move
        return math.isnan(busy) or busy < still / 2  # else it only waits for the processor

    def _is_idle(self, now: float) -> bool:
        elapsed = now - self.window_at
        if elapsed < _IDLE_S:
            return False
        busy = _busy_seconds(self.thread)
        share = (busy - self.busy_at_window) / elapsed
        self.window_at, self.busy_at_window = now, busy
        return share < _IDLE_SHARE


def _place_of(thread: threading.Thread) -> tuple[CodeType, int] | None:
    """Return the function and the instruction that `thread` is at, and let its frame go again at once.

    A frame that is held while its function returns keeps the function's tensors alive, and now and then a
    peak would be too high. The garbage collector is off meanwhile: in CPython up to 3.11.8 its finalizers can
    let another thread run, which then waits for ever for the lock that is held here (python/cpython#106883).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        frame = sys._current_frames().get(thread.ident or 0)
    finally:
        if collects:
            gc.enable()
    return None if frame is None else (frame.f_code, frame.f_lasti)


def _busy_seconds(thread: threading.Thread) -> float:
    """Return how long `thread` has run or wanted to; NaN, which never looks idle, if that is not known.

    Only Linux knows. The thread's own clock (pthread_getcpuclockid) is no substitute: for a thread that has
    ended it crashes the process.
    """
    try:
        ran, queued, _ = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()
    except (OSError, ValueError):
        return math.nan
    return (int(ran) + int(queued)) / 1e9


class ReplicaThread(threading.Thread):
    """One replica's thread, whose `start` returns when the replica has finished or waits for another."""

    # thread ident → the replica it waits on, shared by all
    conductors: dict[int, ReplicaThread] = {}  # noqa: RUF012

    def start(self) -> None:
        """Start the replica and let it have its turn."""
        super().start()
        me = threading.get_ident()
        outer = self.conductors.get(me)
        self.conductors[me] = self
        try:
            self._give_turn()
        finally:
            self.conductors.pop(me)
            if outer is not None:
                self.conductors[me] = outer

    def _give_turn(self) -> None:
        """Wait until the replica at work ends or waits; with a nested call that is the innermost one."""
        self.join(_POLL_S)
        if not self.is_alive():  # as nearly always: then there is nothing to judge, and looking costs
            return
        watch = _Watch(self)
        while self.is_alive():
            at_work = self._innermost()
            if at_work is not watch.thread:
                watch = _Watch(at_work)
            if watch.is_waiting():
                return
            self.join(_POLL_S)

    def _innermost(self) -> threading.Thread:
        thread: ReplicaThread = self
        while (inner := self.conductors.get(thread.ident or 0)) is not None and inner.is_alive():
            thread = inner
        return thread


class ParallelApplyThreading:
    """Stands in for the module `threading` inside torch/nn/parallel/parallel_apply.py."""

    Lock = staticmethod(threading.Lock)
    Thread = ReplicaThread

"""The replicas of one DataParallel call take turns, in device order.

`torch.nn.parallel.parallel_apply` starts one thread a replica and joins them all. On two cores threads at once gain
nothing, and lines printed by replicas would come in any order. So here `start()` returns when its replica is through,
and the next one starts after it.

A replica may wait for another that has not started (a queue or a barrier between replicas, as in synchronised batch
normalisation). Then `start()` returns early and they run side by side from there on. Whether a replica waits is judged
from outside, since a lock cannot be asked who waits on it: see `_Watch`.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_POLL_S = 0.002
_WAITING_S = 0.01  # this long inside a waiting function of the standard library: it waits
_IDLE_S = 0.25  # this long on one and the same instruction without using the processor: it waits
_PATIENCE_S = 10.0  # a replica that spins until another comes can only be told by its taking too long

_WAITING_FILES = {threading.__file__, queue.__file__}


class _Watch:
    """Judges whether a thread waits: it stands still in a waiting function, or uses no processor time."""

    def __init__(self, thread: threading.Thread) -> None:
        self.thread = thread
        self.began = self.since = time.monotonic()
        self.place: tuple[object, ...] = ()

    def is_waiting(self) -> bool:
        """Look once; to be asked every few milliseconds."""
        now = time.monotonic()
        frame = sys._current_frames().get(self.thread.ident or 0)
        place = (frame and frame.f_code, frame and frame.f_lasti, _processor_time(self.thread))
        if place != self.place:
            self.place, self.since = place, now
        still = now - self.since
        if frame is not None and _in_waiting_function(frame) and still >= _WAITING_S:
            return True
        return still >= _IDLE_S or now - self.began >= _PATIENCE_S


def _in_waiting_function(frame: FrameType) -> bool:
    return frame.f_code.co_filename in _WAITING_FILES


def _processor_time(thread: threading.Thread) -> int:
    """Return the processor time of `thread` in milliseconds; 0 where the system does not tell."""
    try:
        return int(time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0)) * 1000)
    except (AttributeError, OSError):
        return 0


class ReplicaThread(threading.Thread):
    """One replica's thread, whose `start` returns when the replica is through or waits for another."""

    conductors: dict[int, ReplicaThread] = {}  # noqa: RUF012 - shared on purpose: thread ident → the replica it waits on

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

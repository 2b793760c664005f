"""The replicas of one DataParallel call take turns, in device order; and new threads see the GPUs.

`torch.nn.parallel.parallel_apply` starts one thread per replica and joins them all. Side by side they gain
little on a CPU, and lines printed by replicas would come in any order. So here `start()` returns when its
replica has finished. A replica may wait for another that has not started (a queue, a lock, or a barrier as in
synchronised batch normalisation). It then uses hardly any of a processor's time, `start()` returns early, and
the two run side by side from there on.

PyTorch's dispatch modes are thread-local, so each new thread enters a `VirtualGpuMode`. It inherits nothing
else: it starts on device 0, with gradients on and autocast off, as with real GPUs.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

from dpdemo.virtual.applying import replace, stands_in
from dpdemo.virtual.threads import seeing_gpus

_AT_ONCE_S = 0.02  # most replicas have ended by then: nobody looks at them
_WINDOW_S, _IDLE_SHARE = 0.1, 0.2  # a replica waits if it is busy for less than this share of a window
_PATIENCE_S = 10.0  # a replica that spins until another one comes shows only by the time that it takes
_bootstrap: Any = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]


@stands_in(threading.Thread, "_bootstrap_inner", why="dispatch modes are thread-local")
def _bootstrap_with_gpus(self: threading.Thread) -> None:
    """Start a thread that sees the GPUs of the open block, if there is one."""
    with seeing_gpus():
        _bootstrap(self)


class _ReplicaThread(threading.Thread):
    """A replica's thread, whose `start` returns when the replica has finished or waits for another."""

    _turns: dict[int, _ReplicaThread] = {}  # noqa: RUF012 - by thread, the replica whose turn it waits for

    def start(self) -> None:
        """Start the replica and let it have its turn."""
        super().start()
        me = threading.get_ident()
        outer = self._turns.get(me)
        self._turns[me] = self
        try:
            deadline = time.monotonic() + _PATIENCE_S
            self.join(_AT_ONCE_S)
            while self.is_alive() and time.monotonic() < deadline and not self._innermost().idles():
                pass
        finally:
            self._turns.pop(me)
            if outer is not None:
                self._turns[me] = outer

    def _innermost(self) -> _ReplicaThread:
        """Return the replica at work: with a DataParallel inside a replica, an inner one."""
        thread = self
        while (inner := self._turns.get(thread.ident or 0)) is not None and inner.is_alive():
            thread = inner
        return thread

    def idles(self) -> bool:
        """Watch the replica for a window, and return whether it waits."""
        began, before = time.monotonic(), _busy_seconds(self)
        self.join(_WINDOW_S)
        is_idle = _busy_seconds(self) - before < _IDLE_SHARE * (time.monotonic() - began)
        return self.is_alive() and is_idle and _sleeps(self)


def _busy_seconds(thread: threading.Thread) -> float:
    """Return how long `thread` has run or waited for a processor, which only Linux knows.

    Elsewhere it is how long this process has run. The thread's clock (pthread_getcpuclockid) is no
    substitute: for a thread that has ended it crashes the process.
    """
    try:
        ran, queued, _ = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()
    except (OSError, ValueError):
        return time.process_time()
    return (int(ran) + int(queued)) / 1e9


def _sleeps(thread: threading.Thread) -> bool:
    """Return whether `thread` waits for something else than a processor; where nobody knows, True.

    Linux adds the time in which a thread waits for a processor only when it gets one. On a busy machine a
    replica may have waited for a whole window.
    """
    try:
        status = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] == "S"


class _ParallelApplyThreading:
    """Replaces the module `threading` inside torch/nn/parallel/parallel_apply.py."""

    Lock = staticmethod(threading.Lock)
    Thread = _ReplicaThread


replace(
    sys.modules["torch.nn.parallel.parallel_apply"],
    "replicas take turns in device order",
    threading=_ParallelApplyThreading,
)

"""The replicas of one DataParallel call take turns, in device order; and new threads see the GPUs.

`torch.nn.parallel.parallel_apply` starts one thread per replica and joins them all. Side by side they gain
little on a CPU, and lines printed by replicas would come in any order. So here `start()` returns when its
replica has finished, and the next one starts after it. A replica may wait for another that has not started (a
queue, or a barrier as in synchronised batch normalisation). Then `start()` returns early, and the two run
side by side from there on. A lock cannot be asked who waits on it; so a replica counts as waiting once it
uses hardly any of the processor's time, at once in a waiting function of the standard library, elsewhere for
longer.

PyTorch's dispatch modes are thread-local, so each new thread enters a `VirtualGpuMode` of its own. It
inherits nothing else: it starts on device 0, with gradients on and autocast off, as with real GPUs.
"""

from __future__ import annotations

import gc
import math
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.parallel

from dpdemo.virtual import state
from dpdemo.virtual.applying import replace, stands_in
from dpdemo.virtual.ops.dispatch import VirtualGpuMode
from dpdemo.virtual.patches.legacy import apply_default_type

_POLL_S = 0.002
_WAITING_S, _IDLE_S = (
    0.01,
    0.25,
)  # how long a replica is idle, in a function of `_WAITING_FILES` and elsewhere
_IDLE_SHARE = 0.2
_PATIENCE_S = 10.0  # a replica that spins until another one comes shows only by the time that it takes
_WAITING_FILES = {threading.__file__, queue.__file__}
_bootstrap: Any = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]


@stands_in(threading.Thread, "_bootstrap_inner", why="dispatch modes are thread-local")
def _bootstrap_with_gpus(self: threading.Thread) -> None:
    """Start a thread inside a mode of its own.

    A GPU's results do not depend on the thread that launches its kernels; a CPU's do. PyTorch gives a thread
    the number of threads that `torch.set_num_threads` set once it first asks for it (`lazy_init_num_threads`,
    aten/src/ATen/Parallel.h), and MKL, if called before, may take another kernel. So each thread asks at
    once.
    """
    if state.session is None:
        _bootstrap(self)
        return
    state.session.current.inside = True
    torch.get_num_threads()
    with VirtualGpuMode(state.session):
        apply_default_type()
        _bootstrap(self)


class _ReplicaThread(threading.Thread):
    """One replica's thread, whose `start` returns when the replica has finished or waits for another."""

    _turns: dict[int, _ReplicaThread] = {}  # noqa: RUF012 - by thread, the replica whose turn it waits for

    def start(self) -> None:
        """Start the replica and let it have its turn."""
        super().start()
        me = threading.get_ident()
        outer = self._turns.get(me)
        self._turns[me] = self
        try:
            self._give_turn()
        finally:
            self._turns.pop(me)
            if outer is not None:
                self._turns[me] = outer

    def _give_turn(self) -> None:
        began = since = time.monotonic()
        last, busy = None, 0.0
        self.join(_POLL_S)
        while self.is_alive() and (now := time.monotonic()) - began < _PATIENCE_S:
            at_work = self._innermost()
            look, busy_now = (at_work, _is_in_waiting_function(at_work)), _busy_seconds(at_work)
            if look != last:
                last, since, busy = look, now, busy_now
            elif now - since >= (_WAITING_S if look[1] else _IDLE_S):
                share = (busy_now - busy) / (now - since)
                if share < _IDLE_SHARE or (look[1] and math.isnan(share)):
                    return
                since, busy = now, busy_now
            self.join(_POLL_S)

    def _innermost(self) -> threading.Thread:
        """Return the replica at work: with a DataParallel inside a replica, one of the inner ones."""
        thread: _ReplicaThread = self
        while (inner := self._turns.get(thread.ident or 0)) is not None and inner.is_alive():
            thread = inner
        return thread


def _is_in_waiting_function(thread: threading.Thread) -> bool:
    """Return whether `thread` is in a function of the standard library that waits.

    Its frame is dropped at once. A frame that is held while its function returns keeps the function's tensors
    alive, and now and then a peak would be too high. The garbage collector is off meanwhile: in CPython up to
    3.11.8 its finalizers can let another thread run, which then waits for ever for the lock that is held here
    (python/cpython#106883).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        frame = sys._current_frames().get(thread.ident or 0)
        return frame is not None and frame.f_code.co_filename in _WAITING_FILES
    finally:
        if collects:
            gc.enable()


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


class _ParallelApplyThreading:
    """Replaces the module `threading` inside torch/nn/parallel/parallel_apply.py."""

    Lock = staticmethod(threading.Lock)
    Thread = _ReplicaThread


replace(
    sys.modules["torch.nn.parallel.parallel_apply"],
    "replicas take turns in device order",
    threading=_ParallelApplyThreading,
)

"""The replicas of one DataParallel call take turns, in device order; and new threads see the GPUs.

`torch.nn.parallel.parallel_apply` starts one thread per replica and joins them all. Side by side they gain
little on a CPU, and lines printed by replicas would come in any order. So here `start()` returns when its
replica has finished. A replica may wait for another that has not started (a queue, a lock, or a barrier as in
synchronised batch normalisation). It then sleeps, `start()` returns early, and the two run side by side from
there on.

PyTorch's dispatch modes are thread-local, so each new thread enters a `VirtualGpuMode`. It inherits nothing
else: it starts on device 0, with gradients on and autocast off, as with real GPUs.
"""

import sys
import threading
import time
from pathlib import Path
from typing import Any

from dpdemo.virtual.applying import replace, stands_in
from dpdemo.virtual.threads import seeing_gpus

_AT_ONCE_S = 0.02  # most replicas have ended by then: nobody looks at them
_LOOKS, _LOOK_S, _ASLEEP = 10, 0.01, 8  # a replica waits if it sleeps at so many of these looks
_PATIENCE_S = 10.0  # a replica that spins until another one comes shows only by the time that it takes
_STATUS = "/proc/self/task/{}/stat"
_bootstrap: Any = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]


@stands_in(threading.Thread, "_bootstrap_inner", why="dispatch modes are thread-local")
def _bootstrap_with_gpus(self: threading.Thread) -> None:
    """Start a thread that sees the GPUs of the open block, if there is one."""
    with seeing_gpus():
        _bootstrap(self)


class _ReplicaThread(threading.Thread):
    """A replica's thread, whose `start` returns when the replica has finished or waits for another."""

    def start(self) -> None:
        """Start the replica and let it have its turn."""
        super().start()
        starter: Any = threading.current_thread()
        starter.replica = self
        deadline = time.monotonic() + _PATIENCE_S
        self.join(_AT_ONCE_S)
        while self.is_alive() and time.monotonic() < deadline and not _waits(_at_work(self)):
            pass
        starter.replica = None


def _at_work(thread: threading.Thread) -> threading.Thread:
    """Return the replica at work: with a DataParallel inside a replica, an inner one."""
    inner = getattr(thread, "replica", None)
    return thread if inner is None or not inner.is_alive() else _at_work(inner)


def _waits(thread: threading.Thread) -> bool:
    """Look at a replica for a while, and return whether it waits for something else than a processor."""
    num_asleep = 0
    for _ in range(_LOOKS):
        num_asleep += _sleeps(thread)
        thread.join(_LOOK_S)
    return thread.is_alive() and num_asleep >= _ASLEEP


def _sleeps(thread: threading.Thread) -> bool:
    """Return whether a thread sleeps now; where the system does not tell, whether this process does."""
    try:
        status = Path(_STATUS.format(thread.native_id)).read_text()
    except OSError:
        before = time.process_time()
        thread.join(_LOOK_S)
        return time.process_time() - before < _LOOK_S / 5
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

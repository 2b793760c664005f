"""What a launch needs of this process, and gives back: environment, signals, the agent's log, progress."""

import contextlib
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dpdemo.running.epoch import Progress

_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_POLL_SECONDS = 0.1
_NO_NUMPY = "ignore:Failed to initialize NumPy"  # torch says so on import, and nothing here needs it


@contextlib.contextmanager
def launching(num_ranks: int) -> Iterator[None]:
    """Prepare this process for launching ranks, and put everything back."""
    with _environment(num_ranks), _signals(), _silence():
        yield


@contextlib.contextmanager
def _environment(num_ranks: int) -> Iterator[None]:
    """Set what the ranks inherit; what the user has set is kept.

    Each rank gets its share of the cores, as otherwise each would start a thread per core.
    """
    before = dict(os.environ)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // num_ranks)))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (before.get("PYTHONWARNINGS"), _NO_NUMPY)))
    os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path)  # noqa: PTH100
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Put the handlers back that the agent replaces (`PContext.start`), and start ranks with Ctrl-C blocked.

    The agent passes Ctrl-C on to its ranks, and one whose interpreter is just starting would print a
    traceback. So ranks inherit a mask that blocks SIGINT, and take it off themselves. This process hears
    SIGINT through a thread without the mask: Python runs the handler in the main thread all the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _HANDLED}
    done = threading.Event()
    listener = threading.Thread(target=done.wait, daemon=True)
    listener.start()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        done.set()
        listener.join()


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep the agent's own log off the terminal: what matters in it comes as an exception."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("torch.distributed")]
    levels = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            # the agent leaves its ranks' log files to the garbage collector
            warnings.simplefilter("ignore", ResourceWarning)
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


@contextlib.contextmanager
def polled(path: Path, progress: Progress | None, take: Callable[[Path], Any]) -> Iterator[None]:
    """Hand on the progress that rank 0 leaves in a file."""
    if progress is None:
        yield
        return
    done = threading.Event()

    def poll() -> None:
        while not done.wait(_POLL_SECONDS):
            found = take(path)
            if found is not None:
                progress(*found)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()

"""Processes of this machine: which run, and which that this one has started may become ranks."""

import contextlib
import os
import sys
import threading
from pathlib import Path

from dpdemo.ranks.log import FOLDER

_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
_LAUNCHERS = tuple(
    f"{os.sep}{part}" for part in (f"multiprocessing{os.sep}", f"elastic{os.sep}", "subprocess.py")
)
"""Files whose functions wait for the processes that they have started."""


_forks: list[int] = []
os.register_at_fork(after_in_parent=lambda: _forks.append(os.getpid()))


def forked_by(process: int) -> int:
    """Count the processes that one has forked since this module was imported."""
    return _forks.count(process)


def has_reader(folder: str | None) -> bool:
    """Return whether a process reads the notes in a folder, by the number in its name (`FOLDER`)."""
    return folder is not None and is_alive(int(Path(folder).name.removeprefix(FOLDER).partition("-")[0]))


def is_alive(process: int) -> bool:
    """Return whether a process runs; one that has ended and waits to be collected does not."""
    try:
        if sys.platform == "linux":
            return _state_and_parent(str(process))[0] != "Z"
        os.kill(process, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def is_running() -> bool:
    """Return whether a thread of this process, but for the one that asks, uses a core or wants one."""
    this_thread = str(threading.get_native_id())
    try:
        tasks = [task for task in os.listdir("/proc/self/task") if task != this_thread]  # noqa: PTH208 - names alone
    except OSError:
        return False  # not Linux: stacks must do
    for task in tasks:
        with contextlib.suppress(OSError):
            if _state_and_parent(f"self/task/{task}")[0] in "RD":
                return True
    return False


def _state_and_parent(task: str) -> tuple[str, int]:
    words = Path(f"/proc/{task}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    return words[0], int(words[1])


def may_become_ranks() -> set[int] | None:
    """Return the processes that this one has started, but for helpers of multiprocessing, and itself.

    Without this process if it waits for those that it has started; None where nobody can tell.
    """
    if sys.platform != "linux":
        return None
    parents: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - names alone
        try:
            state, parent = _state_and_parent(name)
            command = Path(f"/proc/{name}/cmdline").read_text("utf-8", "replace")
        except OSError:
            continue
        if state != "Z" and not any(helper in command for helper in _HELPERS):
            parents[int(name)] = parent
    found = {os.getpid()}
    while True:
        more = {process for process, parent in parents.items() if parent in found} - found
        if not more:
            break
        found |= more
    return found - ({os.getpid()} if _waits_for_others() else set())


def _waits_for_others() -> bool:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 - as in tracebacks
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in _LAUNCHERS):
            return True
        frame = frame.f_back
    return False


def exit_at_once(code: int) -> None:
    """End the process of a rank, without Python's own way of shutting down.

    That can wait for ranks that never answer, and aborts where it meets a thread of gloo that is still
    letting go of tensors: "terminate called without an active exception" (pytorch/pytorch#179291).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

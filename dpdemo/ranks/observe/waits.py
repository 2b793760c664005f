"""Notice when a rank is blocked in torch.distributed, and note where.

A thread looks at the main thread's stack four times a second. The rank is blocked if the main thread has not
left a call that waits for other ranks, no thread of the process runs, and nothing was noted meanwhile. A rank
that only computes slowly, or waits for a file, is not blocked.
"""

import _thread
import contextlib
import inspect
import os
import sys
import threading
import time
import uuid
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from dpdemo.models.frames import OURS, is_users
from dpdemo.ranks.events import Joined, Joining, Wait
from dpdemo.ranks.observe.notes import Notes, holders, never_raises, users_line
from dpdemo.ranks.observe.training import TrainingNotes
from dpdemo.ranks.processes import is_running
from dpdemo.virtual.process_groups import attempt, before_first_group

_LOOK_S = 0.25
_LOOKS = 4
_TORCH = os.path.dirname(torch.__file__) + os.sep  # noqa: PTH120 - text
_WAITING_FILES = (f"{_TORCH}distributed{os.sep}", f"{_TORCH}autograd{os.sep}", f"{_TORCH}futures{os.sep}")
_PASSED_THROUGH = (f"{_TORCH}_ops.py", f"{_TORCH}utils{os.sep}", f"{_TORCH}_tensor.py")


class BlockedNotes:
    """Looks at a thread from another one."""

    def __init__(self, notes: Notes, models: TrainingNotes, *, is_launched: bool) -> None:
        self.notes, self.models, self.is_launched = notes, models, is_launched
        self.is_started = False

    def start(self) -> None:
        """Begin to look, once."""
        if not self.is_started:
            self.is_started = True
            _thread.start_new_thread(self._run, ())  # threading's own would see the GPUs

    def _run(self) -> None:
        seen, looks = None, 0
        parent = os.getppid()
        while True:
            time.sleep(_LOOK_S)
            if self.is_launched and os.getppid() != parent:
                os._exit(1)  # the launcher is gone
            with contextlib.suppress(Exception):
                place = self._place()
                looks = looks + 1 if place is not None and place == seen else 0
                if looks == _LOOKS:
                    self._note()
                    place = self._place()  # with one event more
                seen = place

    def _place(self) -> tuple[Any, ...] | None:
        if is_running():  # first of all: reading files lets the thread go on, and no frame may be held then
            return None
        frame = _stack()
        return (id(frame), frame.f_lasti, self.notes.num_written) if is_waiting(frame) else None

    def _note(self) -> None:
        what, at = _function_and_line()
        backward, unused = self.models.backward_passes(), self.models.unused()
        is_setup = what == "init_process_group"
        self.notes.write(Wait(what, at, is_setup, backward, tuple(unused)))


def _stack() -> FrameType:
    """Return the main thread's innermost frame.

    Whoever holds it while its function returns keeps the function's tensors alive, and they are told from
    C++'s by who holds them: it is to be dropped before anything that lets another thread run.
    """
    return sys._current_frames()[threading.main_thread().ident or 0]


def _function_and_line() -> tuple[str, str]:
    frame = _stack()
    return _function(frame), users_line(frame)


def is_waiting(frame: FrameType) -> bool:
    """Return whether the innermost call is one that waits for other ranks."""
    here: FrameType | None = frame
    while here is not None:
        if here.f_code is _wait.__code__:
            return True
        name = here.f_code.co_filename
        if name.startswith(_WAITING_FILES):
            return True
        if not name.startswith((OURS, *_PASSED_THROUGH)):
            return False
        here = here.f_back
    return False


def _function(frame: FrameType) -> str:
    """Return the function of PyTorch that the program called."""
    found = "a collective"
    here: FrameType | None = frame
    while here is not None:
        name = here.f_code.co_filename
        if is_users(name):
            break
        if here.f_code is _wait.__code__:
            found = "Work.wait"
        elif name.startswith((*_WAITING_FILES, f"{_TORCH}_tensor.py")) and here.f_code.co_name != "wrapper":
            found = here.f_code.co_name
        here = here.f_back
    return found


def _wait(wait: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Go around `Work.wait`, which is C++ and has no frame of its own."""
    return wait(self, *args, **kwargs)


def _world_id(store: Any) -> str:
    """Return a name that all ranks of this world, and of no other, agree on by their store."""
    try:
        return bytes(store.compare_set(f"dpdemo/world {attempt()}", "", uuid.uuid4().hex)).decode()
    except Exception:  # noqa: BLE001 - a store of another kind
        return f"children of {os.getppid()}"


def watch(notes: Notes, models: TrainingNotes, *, is_launched: bool) -> BlockedNotes:
    """Look at this process from its first process group on."""
    c10d: Any = dist.distributed_c10d
    notes.around(dist.Work, "wait", why="it waits for other ranks, and has no frame in Python")(_wait)
    blocked = BlockedNotes(notes, models, is_launched=is_launched)
    world_id = ""

    def agree(store: Any) -> None:
        nonlocal world_id
        world_id = _world_id(store)

    notes.listen(before_first_group, agree)
    signature = inspect.signature(c10d.init_process_group)

    @never_raises
    def note_joining(*args: Any, **kwargs: Any) -> None:
        """Note which of how many ranks this process is about to be."""
        given = signature.bind(*args, **kwargs).arguments
        rank, size = (given.get(name, -1) for name in ("rank", "world_size"))
        notes.write(
            Joining(
                rank=rank if rank >= 0 else int(os.environ["RANK"]),
                size=size if size >= 0 else int(os.environ["WORLD_SIZE"]),
            )
        )

    @notes.around(holders("init_process_group"), "init_process_group", why="the process becomes a rank")
    def init_process_group(join: Any, /, *args: Any, **kwargs: Any) -> Any:
        note_joining(*args, **kwargs)
        blocked.start()
        result = join(*args, **kwargs)
        rank, size = dist.get_rank(), dist.get_world_size()
        notes.write(Joined(rank, size, world_id, users_line()))
        return result

    return blocked

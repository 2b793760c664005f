"""The file in which a rank notes its events."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import threading
from typing import TYPE_CHECKING, Any

from dpdemo.models.frames import is_installed, is_users
from dpdemo.ranks.events import Began
from dpdemo.ranks.log import BROKEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType

    from dpdemo.ranks.events import Event

NOWHERE = "a thread of PyTorch's own"


class Notes:
    """Appends events to this process's file; a full disk ends the notes, not the program."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{os.getpid()}.jsonl"
        self.process = os.getpid()
        self.num_written = 0
        self.lock, self._is_writing = threading.RLock(), False
        self._file = -1

    def write(self, event: Event) -> bool:
        """Append an event; return whether it arrived."""
        if os.getpid() != self.process:  # a forked child is not a rank
            return False
        text = event.to_line()
        with self.lock:
            if self._is_writing:  # what writing itself does, such as making the folder, is no event
                return False
            self._is_writing = True
            try:
                if self._file < 0:
                    self.path.parent.mkdir(mode=0o700, exist_ok=True)
                    self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
                    text = Began().to_line() + text
                self.num_written += 1
                is_whole = os.write(self._file, text) == len(text)
            except OSError:
                is_whole = False
            finally:
                self._is_writing = False
            if not is_whole:
                with contextlib.suppress(OSError):
                    self.path.rename(self.path.with_suffix(BROKEN))
            return is_whole


def never_raises(observe: Callable[..., None]) -> Callable[..., None]:
    """Ignore exceptions of an observer: the program continues as without it."""

    @functools.wraps(observe)
    def call(*args: Any, **kwargs: Any) -> None:
        with contextlib.suppress(Exception):
            observe(*args, **kwargs)

    return call


def around(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Put the decorated function around one of PyTorch's, for good; it gets that as its first argument."""

    def put(observer: Callable[..., Any]) -> Callable[..., Any]:
        original = getattr(owner, name)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            return observer(original, *args, **kwargs)

        setattr(owner, name, call)
        return call

    return put


def users_line(frame: FrameType | None = None) -> str:
    """Return the line of the program that is under way, as `file:line`: its own before a library's."""
    librarys = None
    for name, number in _frames(frame or inspect.currentframe()):
        if not is_installed(name):
            return f"{short(name)}:{number}"
        librarys = librarys or f"{short(name)}:{number}"
    return librarys or NOWHERE


def users_lines() -> Iterator[str]:
    """Yield the lines of the program and its libraries that are under way, the innermost first."""
    return (f"{name}:{number}" for name, number in _frames(inspect.currentframe()))


def _frames(frame: FrameType | None) -> Iterator[tuple[str, int]]:
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


@functools.cache
def short(name: str) -> str:
    """Return a file's path relative to the folder in which it was first met, if it is inside that."""
    try:
        relative = os.path.relpath(name)
    except (OSError, ValueError):
        return name
    return name if relative.startswith("..") else relative

"""The file in which a rank notes its events, and the patches by which observers see them."""

import contextlib
import functools
import inspect
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from dpdemo.models.frames import OURS, is_installed, is_users
from dpdemo.ranks.events import Began, Event, Unobserved
from dpdemo.ranks.log import BROKEN
from dpdemo.startup.hook import when_imported

if TYPE_CHECKING:
    from dpdemo.virtual.applying import Patches, Wrap

Kind = TypeVar("Kind")
NOWHERE = "a thread of PyTorch's own"


class Notes:
    """Appends events to this process's file; a full disk ends the notes, not the program.

    Observers replace PyTorch's functions through it, until `close`. What cannot be replaced costs its own
    line of the report.
    """

    def __init__(self, folder: Path) -> None:
        self.until_end = contextlib.ExitStack()
        self.first: list[Event] = [Began()]
        """Events that are written before the first other one: a process that notes nothing makes no file."""
        self.path = folder / f"{os.getpid()}.jsonl"
        self.process = os.getpid()
        self.num_written = 0
        self._numbers: Counter[tuple[type[Event], object]] = Counter()
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
                    text = b"".join(event.to_line() for event in self.first) + text
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

    @functools.cached_property
    def patches(self) -> "Patches":
        """The functions that observers have replaced."""
        found = _patches()
        self.until_end.callback(found.undo)
        return found

    def number(self, kind: type[Event], at: object) -> int:
        """Count the events of a kind at a place, and return the number of the next, from 1."""
        self._numbers[kind, at] += 1
        return self._numbers[kind, at]

    def around(self, owner: Any, *names: str, why: str) -> "Wrap":
        """Put a function around PyTorch's own, which it gets as its first argument (`Patches.around`)."""

        def put(observer: Callable[..., Any]) -> Callable[..., Any]:
            try:
                return self.patches.around(owner, *names, why=why)(observer)
            except Exception as error:  # noqa: BLE001 - another release of PyTorch
                self.missed(why, error)
                return observer

        return put

    def install(self, what: str, observe: Callable[[], Kind]) -> Kind | None:
        """Begin to observe something; if that fails, it is all that is not observed."""
        try:
            return observe()
        except Exception as error:  # noqa: BLE001 - another release of PyTorch, or a bug
            self.missed(what, error)
            return None

    def when_imported(self, name: str, observe: Callable[[Any], object]) -> None:
        """Begin to observe something once a module is imported."""

        def install(module: Any) -> None:
            if os.getpid() == self.process:
                self.install(name, lambda: observe(module))

        when_imported(name, install)

    def missed(self, what: str, error: Exception) -> None:
        """Note what is not observed."""
        event = Unobserved(what, f"{type(error).__name__}: {error}")
        if self._file < 0:
            self.first.append(event)
        else:
            self.write(event)

    def listen(self, listeners: list[Kind], listener: Kind) -> None:
        """Add a listener."""
        listeners.append(listener)
        self.until_end.callback(listeners.remove, listener)

    def hooked(self, handle: Any) -> None:
        """Remove a hook of PyTorch's at the end."""
        self.until_end.callback(handle.remove)

    def close(self) -> None:
        """Put back all that observers have replaced, and note nothing more."""
        self.until_end.close()
        self.process = -1


def never_raises(observe: Callable[..., None]) -> Callable[..., None]:
    """Ignore exceptions of an observer: the program continues as without it."""

    @functools.wraps(observe)
    def call(*args: Any, **kwargs: Any) -> None:
        with contextlib.suppress(Exception):
            observe(*args, **kwargs)

    return call


def _patches() -> "Patches":
    from dpdemo.virtual.applying import Patches  # it imports torch, and a file of notes needs none

    return Patches()


_until_exit = functools.cache(_patches)


def around(owner: Any, name: str) -> "Wrap":
    """Put a function around one of PyTorch's or Python's until the very end of the process (`against/`)."""
    return _until_exit().around(owner, name, why="one process gets what the ranks got")


def holders(name: str) -> tuple[Any, ...]:
    """Return the modules that hold a function of torch.distributed: some import it by its name."""
    first = sys.modules["torch.distributed.distributed_c10d"]
    modules = [each for key, each in list(sys.modules.items()) if key.startswith("torch.distributed")]
    others = (each for each in modules if getattr(each, "__dict__", {}).get(name) is vars(first)[name])
    return first, *(each for each in others if each is not first)


def users_line(frame: FrameType | None = None) -> str:
    """Return the line of the program that is under way, as `file:line`: its own before a library's."""
    librarys = None
    for name, number in _frames(frame or inspect.currentframe()):
        if not is_installed(name):
            return f"{short(name)}:{number}"
        librarys = librarys or f"{short(name)}:{number}"
    return librarys or NOWHERE


def frame_below() -> FrameType | None:
    """Return the innermost frame that is not dpdemo's: whoever called what is observed."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(OURS):
        frame = frame.f_back
    return frame


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

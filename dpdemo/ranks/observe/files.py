"""Observe which files a rank writes from the beginning, and which folders and files it makes."""

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from dpdemo.models.frames import is_installed, is_users
from dpdemo.ranks.events import FileWritten, PathMade
from dpdemo.ranks.observe.notes import NOWHERE, Notes, never_raises, users_line

_NOT_RESULTS = ("/dev/", "/proc/", "/sys/", "/.cache/", "__pycache__", "torchinductor", "/.triton/")

_MAX_PATHS = 64
_TEMPORARY = tempfile.__file__
_NUMBERS = re.compile(r"\d+")
_SECONDS_AGO = 60
_CLOCKS = time.localtime, time.gmtime


def _is_named_by_chance(path: str) -> bool:
    """Return whether a path has the number of this process, or the time of the day."""
    numbers = _NUMBERS.findall(path)
    now = time.time()
    moments = [now - seconds for seconds in range(_SECONDS_AGO)]
    stamps = {str(int(moment)) for moment in moments}
    clocks = {time.strftime("%H%M%S", convert(moment)) for moment in moments for convert in _CLOCKS}
    return str(os.getpid()) in numbers or any(
        number[:10] in stamps or number[-6:] in clocks or number[:6] in clocks
        for number in (*numbers, *map("".join, zip(numbers, numbers[1:], numbers[2:], strict=False)))
    )


def _is_temporary(path: str) -> bool:
    """Return whether a path is in the folder for temporary files, and not in the program's own.

    `tempfile.gettempdir` opens files while it holds a lock: called for these, it would wait for itself.
    """
    folder = tempfile.tempdir or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - nothing is made there
    return path.startswith(os.fsdecode(folder) + os.sep) and not path.startswith(str(Path.cwd()) + os.sep)


def _is_programs_own() -> bool:
    """Return whether the line under way is the program's, but for Python's own modules and PyTorch's."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name == _TEMPORARY:
            return False
        if is_users(name):
            return not is_installed(name)
        frame = frame.f_back
    return False


class FileNotes:
    """Notes the files that this process opens for writing, and the paths that it makes."""

    def __init__(self, notes: Notes, collectives: Callable[[], int]) -> None:
        self.notes, self.collectives = notes, collectives
        self.seen: set[tuple[str, int]] = set()
        self.made: set[str] = set()

    @never_raises
    def makes(self, name: Any, *, is_folder: bool) -> None:
        """Note a path that the program's own line makes, not a library or a module for temporary files."""
        path = _path(name)
        if path is None or path in self.made or _is_temporary(path) or not self._is_ours():
            return
        self.made.add(path)
        at = users_line()
        if at != NOWHERE and _is_programs_own():
            number = self.notes.number(PathMade, at)
            if number <= _MAX_PATHS:
                by_chance = _is_named_by_chance(path)
                self.notes.write(PathMade(at, number, path, is_folder, by_chance))

    @never_raises
    def wrote(self, name: Any) -> None:
        """Note a file that is written from the beginning, once for each number of collectives made before."""
        path = _path(name)
        if path is None or not self._is_ours():
            return
        self.makes(path, is_folder=False)
        key = path, self.collectives()
        at = users_line()
        if key not in self.seen and at != NOWHERE:
            self.seen.add(key)
            self.notes.write(FileWritten(path, key[1], at))

    def _is_ours(self) -> bool:
        return os.getpid() == self.notes.process and dist.is_initialized()


def _path(name: Any) -> str | None:
    """Return a whole path, or None of what holds no results."""
    if not isinstance(name, (str, os.PathLike)):
        return None
    path = os.path.abspath(os.fspath(name))  # noqa: PTH100 - text
    return None if (path.endswith((".lock", ".pyc")) or any(part in path for part in _NOT_RESULTS)) else path


def watch(notes: Notes, collectives: Callable[[], int]) -> None:
    """Note the files that this process opens for writing, and what `torch.save` writes in C++."""
    found = FileNotes(notes, collectives)

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            truncates = mode[:1] in {"w", "x"} if isinstance(mode, str) else bool((flags or 0) & os.O_TRUNC)
            if truncates:
                found.wrote(path)
        elif event == "os.mkdir":
            found.makes(arguments[0], is_folder=True)

    sys.addaudithook(audit)

    @notes.around((torch.serialization, torch), "save", why="C++ writes the file")
    def saved(save: Any, /, obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        found.wrote(f)
        save(obj, f, *args, **kwargs)

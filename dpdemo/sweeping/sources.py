"""What a prediction was made from: all modules that are loaded, all files that were read, what imports find.

Files are noted by an audit hook while a model is built and called. Those of installed packages, which are
many, and those that are large are told by size and time, all others by what they hold.
"""

import hashlib
import os
import stat
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

Stamp = str | None
"""What a file is told by; None where there is none."""
MOST_BYTES = 16 * 2**20
"""A file that is larger is not read for its checksum."""
_MACHINE = ("/proc/", "/sys/", "/dev/")
_IMPORTABLE = (".py", ".so", ".pyd", ".pth", ".dist-info", ".egg-info", ".egg-link")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True, slots=True)
class Sources:
    """Files with their stamps, and folders of `sys.path` with the names in them that an import may find.

    They are settled if none changed while it was read.
    """

    files: dict[str, Stamp]
    folders: dict[str, Stamp]
    are_settled: bool = True

    def joined(self, other: "Sources") -> "Sources":
        """Take both together."""
        return Sources({**self.files, **other.files}, {**self.folders, **other.folders})

    def to_dict(self) -> dict[str, object]:
        """Return them as plain data."""
        return {"files": self.files, "folders": self.folders}

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> "Sources":
        """Read them from plain data."""
        return cls(dict(told["files"]), dict(told["folders"]))


def still_hold(sources: Sources) -> bool:
    """Return whether every file and folder is as it was."""
    return all(_of_file(path) == stamp for path, stamp in sources.files.items()) and all(
        _of_folder(path) == stamp for path, stamp in sources.folders.items()
    )


class Noted:
    """What is read while `noting_sources` is open."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self._began_ns = time.time_ns()

    def sources(self) -> Sources:
        """Stamp all that was read up to now, and all modules that are loaded."""
        paths = sorted(self.read | set(_modules()))
        files = {path: _of_file(path) for path in paths}
        settled = all(stamp is not None for stamp in files.values()) and not self._is_changed(paths)
        return Sources(files, {folder: _of_folder(folder) for folder in sys.path if folder}, settled)

    def _is_changed(self, paths: Iterable[str]) -> bool:
        return any(os.stat(path).st_mtime_ns >= self._began_ns for path in paths)  # noqa: PTH116 - thousands


@contextmanager
def noting_sources() -> Iterator[Noted]:
    """Note each file that this process reads, for the length of a `with` block."""
    _hook_once()
    noted = Noted()
    _open_notes.append(noted)
    try:
        yield noted
    finally:
        _open_notes.remove(noted)


_open_notes: list[Noted] = []


@cache
def _hook_once() -> None:
    """Add the hook; Python has no way to take one off, so it does nothing while nobody notes."""
    sys.addaudithook(_hook)


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if event != "open" or not _open_notes:
        return
    path, mode, flags = args
    is_read = "r" in mode and "+" not in mode if isinstance(mode, str) else not (flags or 0) & _WRITING
    if is_read and isinstance(path, str | bytes):
        place = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - called for each file
        if not place.endswith(".pyc") and not place.startswith(_MACHINE):  # a module stands for its .pyc
            for noted in _open_notes:
                noted.read.add(place)


def _modules() -> Iterator[str]:
    for module in list(sys.modules.values()):
        path = vars(module).get("__file__") if hasattr(module, "__dict__") else None
        if isinstance(path, str):
            yield os.path.abspath(path)  # noqa: PTH100 - thousands


@cache
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple({paths[key] + os.sep for key in ("stdlib", "platstdlib", "purelib", "platlib")})


def _of_file(path: str) -> Stamp:
    try:
        found = os.stat(path)  # noqa: PTH116 - thousands
        if stat.S_ISDIR(found.st_mode):  # opened to be listed
            return _of_folder(path)
        if path.startswith(_installed()) or found.st_size > MOST_BYTES or not stat.S_ISREG(found.st_mode):
            return f"{found.st_size} {found.st_mtime_ns}"
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None


def _of_folder(path: str) -> Stamp:
    """Tell a folder by the names in it, so that what is written beside a model changes nothing."""
    try:
        found = os.listdir(path)  # noqa: PTH208 - names alone
        names = sorted(name for name in found if name.endswith(_IMPORTABLE) or _is_package(name))
    except OSError:
        return None
    return hashlib.sha256("\n".join(names).encode("utf-8", "surrogateescape")).hexdigest()


def _is_package(name: str) -> bool:
    """Return whether a folder of this name could be imported; Python makes `__pycache__` itself."""
    return "." not in name and name != "__pycache__"

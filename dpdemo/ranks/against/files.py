"""Files that the ranks write, and a private view of them for the run on one rank.

What that run writes goes to a folder of its own. It does not see what the ranks have made, as if it were the
first to run; where it would read a file that the ranks wrote over or added to, nothing is compared.
"""

from __future__ import annotations

import builtins
import io
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.ranks.events import Touched
from dpdemo.ranks.log import FOLDER
from dpdemo.ranks.observe.files import _NOT_RESULTS
from dpdemo.ranks.observe.notes import around, never_raises
from dpdemo.startup.hook import when_imported

if TYPE_CHECKING:
    from dpdemo.ranks.against.state import State

_READS = ("stat", "lstat", "listdir", "scandir", "access")
_REMOVES = ("remove", "unlink", "rmdir")
_TEMPFILE = f"{os.sep}tempfile.py"


def note(state: State) -> None:
    """Note each file and folder that this rank opens for writing or makes."""
    seen: set[str] = set()

    @never_raises
    def touched(name: Any) -> None:
        if not isinstance(name, (str, os.PathLike)) or os.getpid() != state.notes.process:
            return
        path = os.path.abspath(os.fspath(name))  # noqa: PTH100 - text
        if path not in seen and not _is_aside(path, state.settings.folder):
            seen.add(path)
            state.notes.write(Touched(path, os.path.lexists(path)))

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            if _writes(mode if isinstance(mode, str) else "", flags or 0):
                touched(path)
        elif event == "os.mkdir":
            touched(arguments[0])
        elif event == "os.rename":
            touched(arguments[1])

    sys.addaudithook(audit)

    @around(torch.serialization, "save")
    def saved(save: Any, /, obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        touched(f)
        save(obj, f, *args, **kwargs)

    torch.save = saved


def _is_aside(path: str, folder: str) -> bool:
    is_ours = path.startswith(folder) or f"{os.sep}{FOLDER}" in path  # the notes: writing them notes nothing
    return is_ours or path.endswith(".pyc") or any(part in path for part in _NOT_RESULTS)


def _writes(mode: str, flags: int) -> bool:
    return bool(set(mode) & set("wxa+")) or bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


class PrivateFiles:
    """Maps each path to where the run on one rank finds or puts it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.root = f"{state.settings.folder}{os.sep}files"
        touched = state.ranks.touched
        self.made = {path for path, existed in touched.items() if not existed}
        self.written_over = {path for path, existed in touched.items() if existed and not Path(path).is_dir()}
        self.removed: set[str] = set()
        self.added_to: set[str] = set()
        """Files to which this run adds, and whose first part is lost: the ranks have written over it."""
        self.exempt: set[str] = set()
        self.exists = os.path.lexists
        self.has_written = False

    def read(self, name: Any) -> Any:
        """Return where the content of a path is to be read."""
        path, where = self._path(name), self.find(name)
        if path in self.added_to or (where is name and path in self.written_over):
            self.state.remark(f"it reads {path}, which the ranks have written over", is_fatal=True)
        return where

    def find(self, name: Any) -> Any:
        """Return where a path is to be looked up: whether it is there, and what a folder holds."""
        path = self._path(name)
        if path is None or not (self.has_written or self.made or self.written_over):
            return name
        if self.exists(self.root + path):
            return self.root + path
        if not self.removed.isdisjoint((path, *map(str, Path(path).parents))):
            return self.root + path  # which does not exist
        if not self.made.isdisjoint((path, *map(str, Path(path).parents))):
            return self.root + path  # which does not exist
        return name

    def write(self, name: Any, *, keeps: bool = False, adds: bool = False) -> Any:
        """Return where a path is to be written; with `keeps` its content is copied there first.

        With `adds` it is only added to, which needs nothing of the content.
        """
        path = self._path(name)
        if path is None or not Path(path).parent.is_dir():
            return name
        private = self.root + path
        self.has_written = True
        Path(private).parent.mkdir(parents=True, exist_ok=True)
        if keeps and not self.exists(private) and path not in self.made and Path(path).is_file():
            if adds and path in self.written_over:
                self.added_to.add(path)
            else:
                shutil.copyfile(path, private)
        return private

    def remove(self, name: Any) -> None:
        """Hide a path that is not private, as if it were removed."""
        self.removed.add(str(self._path(name)))
        self.has_written = True

    def _path(self, name: Any) -> str | None:
        if not isinstance(name, (str, os.PathLike)):
            return None
        path = os.fspath(name)
        if not isinstance(path, str):
            return None
        path = os.path.abspath(path)  # noqa: PTH100 - text
        is_exempt = any(path.startswith(each) for each in self.exempt)
        return None if is_exempt or _is_aside(path, self.state.settings.folder) else path


def give_view(state: State) -> PrivateFiles:
    """Install the private view in this process, and return it."""
    files = PrivateFiles(state)
    for owner in (builtins, io):
        _follow_open(files, owner)

    @around(os, "open")
    def os_open(run: Any, /, path: Any, flags: int, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dir_fd") is not None or _is_tempfiles(path, files):
            return run(path, flags, *args, **kwargs)
        if not _writes("", flags):
            return run(files.read(path), flags, *args, **kwargs)
        adds = bool(flags & os.O_APPEND) and not flags & os.O_RDWR
        where = files.write(path, keeps=not flags & os.O_TRUNC, adds=adds)
        return run(where, flags, *args, **kwargs)

    for name in _READS:
        _follow_read(files, name)
    for name in _REMOVES:
        _follow_removal(files, name)
    _follow_folders(files)

    @around(torch.serialization, "save")
    def saved(save: Any, /, obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        save(obj, files.write(f), *args, **kwargs)

    @around(torch.serialization, "load")
    def loaded(load: Any, /, f: Any, *args: Any, **kwargs: Any) -> Any:
        return load(files.read(f), *args, **kwargs)

    torch.save, torch.load = saved, loaded
    when_imported("safetensors.torch", never_raises(lambda module: _follow_safetensors(files, module)))
    return files


def _is_tempfiles(path: Any, files: PrivateFiles) -> bool:
    """Return whether tempfile makes a new file or folder, which is private already."""
    is_new = sys._getframe(3).f_code.co_filename.endswith(_TEMPFILE)
    if is_new:
        files.exempt.add(os.fspath(path))
    return is_new


def _follow_open(files: PrivateFiles, owner: Any) -> None:
    @around(owner, "open")
    def opened(run: Any, /, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if _writes(mode, 0):
            keeps, adds = set(mode).isdisjoint("wx"), "+" not in mode
            return run(files.write(file, keeps=keeps, adds=adds), mode, *args, **kwargs)
        return run(files.read(file), mode, *args, **kwargs)


def _follow_read(files: PrivateFiles, name: str) -> None:
    @around(os, name)
    def read(run: Any, /, *args: Any, **kwargs: Any) -> Any:
        if args and kwargs.get("dir_fd") is None:
            args = (files.find(args[0]), *args[1:])
        return run(*args, **kwargs)


def _follow_removal(files: PrivateFiles, name: str) -> None:
    @around(os, name)
    def remove(run: Any, /, path: Any, *, dir_fd: int | None = None) -> None:
        where = files.find(path) if dir_fd is None else path
        if where is not path or dir_fd is not None or files._path(path) is None:
            run(where, dir_fd=dir_fd)
        elif not files.exists(path):
            run(path)  # which raises
        else:
            files.remove(path)


def _follow_folders(files: PrivateFiles) -> None:
    @around(os, "mkdir")
    def mkdir(run: Any, /, path: Any, *args: Any, **kwargs: Any) -> None:
        is_there = files.exists(path) and files.find(path) is path
        if is_there or kwargs.get("dir_fd") is not None or _is_tempfiles(path, files):
            run(path, *args, **kwargs)
        else:
            run(files.write(path), *args, **kwargs)

    @around(shutil, "rmtree")
    def rmtree(run: Any, /, path: Any, *args: Any, **kwargs: Any) -> None:
        where = files.find(path)
        if where is not path or files._path(path) is None:
            run(where, *args, **kwargs)
        else:
            files.remove(path)

    for name in ("rename", "replace"):

        @around(os, name)
        def move(run: Any, /, src: Any, dst: Any, **kwargs: Any) -> None:
            private = files.read(src)
            if private is src and files._path(src) is not None:
                private = files.write(src, keeps=True)
                files.remove(src)
            run(private, files.write(dst), **kwargs)


def _follow_safetensors(files: PrivateFiles, module: Any) -> None:
    @around(module, "serialize_file")
    def serialize_file(run: Any, /, tensors: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
        return run(tensors, files.write(filename), *args, **kwargs)

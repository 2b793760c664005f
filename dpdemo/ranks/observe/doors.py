"""Doors at which batches are observed: torch's iterators, and loaders of libraries around them."""

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

from torch.distributed.algorithms.join import Join
from torch.utils.data import DataLoader, dataloader

from dpdemo.ranks.observe import fetches
from dpdemo.ranks.observe.fetches import Board
from dpdemo.ranks.observe.loaders import LoaderNotes
from dpdemo.ranks.observe.notes import Notes
from dpdemo.ranks.observe.passes import Pass

_DOORS = {
    "accelerate.data_loader": ("DataLoaderShard", "DataLoaderDispatcher", "SkipDataLoader"),
    "fastai.data.load": ("DataLoader",),
}
"""Classes whose iterators read a DataLoader of torch, and give the loop other batches, or the same later."""
_MADE = {
    "torchdata.stateful_dataloader.stateful_dataloader": "StatefulDataLoader",
    "fastai.data.load": "DataLoader",
}
"""Loaders that do not call the `__init__` of torch's DataLoader."""


def watch(notes: Notes) -> LoaderNotes:
    """Follow the loaders of this process."""
    found = LoaderNotes(notes)
    _follow_iterators(found)
    fetches.watch(notes)
    _name(found, DataLoader)

    @notes.around(Join, "__enter__", why="unequal numbers of batches are expected")
    def joins(enter: Any, /, self: Any) -> Any:
        found.is_joined = True
        return enter(self)

    for module in _DOORS.keys() | _MADE.keys():  # a module can be waited for once
        notes.when_imported(module, lambda module: _follow_library(found, module))
    return found


def _name(found: LoaderNotes, kind: Any) -> None:
    """Name each loader of a class by the line that makes it."""

    @found.notes.around(kind, "__init__", why="a loader is named by the line that makes it")
    def made(make: Any, /, self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        with contextlib.suppress(Exception):
            vars(self)["_dpdemo_at"] = found.names.name(self)
            _open_door(found, type(self))


def _follow_iterators(found: LoaderNotes) -> None:
    """Follow torch's iterators over a DataLoader, which other libraries use, too."""
    base: Any = dataloader._BaseDataLoaderIter

    def begin(iterator: Any, loader: Any) -> None:
        with contextlib.suppress(Exception):
            epoch = vars(iterator)["_dpdemo_epoch"] = found.begin(loader)
            Board.now = epoch.board

    around = found.notes.around

    @around(base, "__init__", why="an epoch begins")
    def begun(init: Any, /, self: Any, loader: Any) -> None:
        begin(self, loader)
        init(self, loader)

    @around(base, "_reset", why="persistent workers begin another epoch")
    def begun_again(reset: Any, /, self: Any, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            begin(self, loader)
        reset(self, loader, first_iter)

    @around(base, "_next_index", why="the sampler draws indices")
    def drawn(draw: Any, /, self: Any) -> Any:
        indices = draw(self)
        epoch = vars(self).get("_dpdemo_epoch")
        if epoch is not None:
            epoch.pending.append(indices)
        return indices

    @around(base, "__next__", "next", why="the loop gets a batch")
    def taken(take: Any, /, self: Any) -> Any:
        epoch: Pass | None = vars(self).get("_dpdemo_epoch")
        if epoch is None:
            return take(self)
        Board.now = epoch.board
        try:
            batch = take(self)
        except StopIteration:
            found.end(epoch, is_complete=True)
            raise
        found.got(epoch, batch, epoch.pending.popleft() if epoch.pending else None)
        return batch


def _follow_library(found: LoaderNotes, module: Any) -> None:
    """Follow the loaders of a library that has just been imported."""
    for name in _DOORS.get(module.__name__, ()):
        if hasattr(module, name):
            _wrap(found, getattr(module, name))
    if module.__name__ in _MADE:
        _name(found, getattr(module, _MADE[module.__name__]))


def _open_door(found: LoaderNotes, kind: Any) -> None:
    """Follow what a subclass of DataLoader gives to the loop, if it makes its own iterator."""
    owner = next((each for each in kind.__mro__ if "__iter__" in vars(each)), DataLoader)
    if owner is not DataLoader and issubclass(owner, DataLoader):
        _wrap(found, owner)


def _wrap(found: LoaderNotes, owner: Any) -> None:
    """Put our door around a class's generator of batches; iterators of other kinds are left as they are."""
    if not inspect.isgeneratorfunction(vars(owner).get("__iter__")):
        return  # a patch leaves no generator function behind, so this also holds the second time

    @found.notes.around(owner, "__iter__", why="it gives the loop other batches than torch's iterator")
    def iterate(original: Any, /, self: Any) -> Iterator[Any]:
        return _through(found, self, original(self))


def _through(found: LoaderNotes, loader: Any, batches: Any) -> Iterator[Any]:
    """Yield a loader's batches, and note them."""
    epoch: Pass | None = None
    with contextlib.suppress(Exception):
        epoch = found.open(loader)
    is_complete = False
    try:
        for batch in batches:
            if epoch is not None:
                found.got(epoch, batch)
            yield batch
        is_complete = True
    finally:
        batches.close()
        if epoch is not None:
            found.end(epoch, is_complete=is_complete)

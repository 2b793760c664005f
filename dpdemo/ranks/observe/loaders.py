"""Observe which samples a rank draws: a tap on the lists of indices of each DataLoader."""

from __future__ import annotations

import contextlib
import itertools
import weakref
import zlib
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Subset, dataloader
from torch.utils.data.distributed import DistributedSampler

from dpdemo.ranks.events import Epoch
from dpdemo.ranks.observe.notes import around, never_raises, users_line, users_lines
from dpdemo.ranks.observe.numbers import checksum

if TYPE_CHECKING:
    from dpdemo.ranks.observe.notes import Notes

_MAX_INDICES, _MAX_LISTS, _MAX_SIZES = 100_000, 16, 8


class LoaderNames:
    """Names each DataLoader by its line; a number follows where a function or a loop makes several there.

    Two loaders differ if other lines led to the call, or if nothing was drawn from the first before the
    second was made. A loader that the program builds again for each epoch keeps its name.
    """

    def __init__(self) -> None:
        self.waiting: dict[tuple[str, ...], weakref.WeakKeyDictionary[Any, int]] = {}
        self.known: dict[str, list[tuple[tuple[str, ...], int]]] = {}

    def name(self, loader: Any) -> str:
        """Return the name of a loader that has just been made."""
        lines = tuple(users_lines())
        waiting = self.waiting.setdefault(lines, weakref.WeakKeyDictionary())
        taken = set(waiting.values())
        waiting[loader] = place = next(number for number in itertools.count() if number not in taken)
        at = users_line()
        known = self.known.setdefault(at, [])
        if (lines, place) not in known:
            known.append((lines, place))
        number = known.index((lines, place))
        return f"{at} (loader {number + 1})" if number else at

    def drawn(self, loader: Any) -> None:
        """Take note that a loader is drawn from."""
        for waiting in self.waiting.values():
            waiting.pop(loader, None)


class Pass:
    """One pass over a DataLoader, as far as it went."""

    def __init__(self, loader: Any, number: int) -> None:
        sampler = getattr(loader, "sampler", None)
        batches = getattr(loader, "batch_sampler", None)
        inner = getattr(batches, "sampler", None)
        if not isinstance(sampler, DistributedSampler) and inner is not None:
            sampler = inner
        is_plain = batches is None or type(batches) is BatchSampler
        self.sampler = type(sampler if is_plain else batches).__name__
        self.number = number
        self.at = vars(loader).get("_dpdemo_at", users_line())
        self.is_distributed = hasattr(sampler, "set_epoch")
        self.is_shuffled = self.is_distributed and bool(getattr(sampler, "shuffle", False))
        epoch = getattr(sampler, "epoch", None)
        self.set_epoch = epoch if isinstance(epoch, int) else None
        self.batches = getattr(loader, "_index_sampler", ())
        self.data, self.dataset = loader.dataset, fingerprint(loader.dataset)
        self.pending: deque[Any] = deque()
        self.drawn: list[int] = []
        self.sizes: tuple[int, ...] = ()
        """Of the last batch, how many elements each tensor has."""
        self.count = self.sum = self.num_batches = 0
        self.is_indexed, self.was_trained, self.is_written = True, False, False

    def consumed(self, batch: Any) -> None:
        """Take the next batch over from those that were drawn in advance."""
        if not self.pending:
            return
        leaves = torch.utils._pytree.tree_leaves(batch)
        self.sizes = tuple(each.numel() for each in leaves if isinstance(each, torch.Tensor))[:_MAX_SIZES]
        drawn = self.pending.popleft()
        self.num_batches += 1
        indices = drawn if isinstance(drawn, (list, tuple)) else [drawn]
        if not all(isinstance(index, int) for index in indices):
            self.is_indexed = False
            return
        data = self.data
        while isinstance(data, Subset):
            indices, data = [int(data.indices[index]) for index in indices], data.dataset
        self.count += len(indices)
        self.sum = zlib.crc32(repr(list(indices)).encode(), self.sum)
        if len(self.drawn) < _MAX_INDICES:
            self.drawn += indices

    def is_whole(self) -> bool:
        """Return whether all batches were drawn: a loop that counts them does not ask for one more."""
        try:
            return self.num_batches == len(self.batches)
        except (TypeError, NotImplementedError):
            return False

    def event(self, *, is_complete: bool) -> Epoch:
        """Return what is noted of it."""
        is_short = self.number <= _MAX_LISTS and self.count <= _MAX_INDICES
        return Epoch(
            at=self.at,
            number=self.number,
            count=self.count,
            sum=self.sum,
            dataset=self.dataset,
            length=self.length(),
            drawn=tuple(self.drawn) if is_short else None,
            sampler=self.sampler,
            set_epoch=self.set_epoch,
            is_distributed=self.is_distributed,
            is_shuffled=self.is_shuffled,
            is_indexed=self.is_indexed,
            is_complete=is_complete or self.is_whole(),
            was_trained=self.was_trained,
        )

    def length(self) -> int | None:
        """Return how many samples the data set has."""
        data = self.data
        while isinstance(data, Subset):
            data = data.dataset
        try:
            return len(data)
        except (TypeError, NotImplementedError):
            return None


class LoaderNotes:
    """Notes each epoch of each DataLoader when it is over."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.running: dict[int, Pass] = {}
        self.names = LoaderNames()
        self.numbers: dict[str, int] = {}
        self.last: Pass | None = None

    @never_raises
    def begin(self, iterator: Any, loader: Any) -> None:
        """Begin an epoch."""
        self.names.drawn(loader)
        at = vars(loader).get("_dpdemo_at", "?")
        for epoch in list(self.running.values()):
            if epoch.at == at:
                self.end(epoch, is_complete=False)
        self.numbers[at] = self.numbers.get(at, 0) + 1
        vars(iterator)["_dpdemo_epoch"] = epoch = Pass(loader, self.numbers[at])
        self.running[id(epoch)] = epoch

    def sizes(self) -> tuple[int, ...]:
        """Return the elements of each tensor in the batch that was drawn last."""
        return () if self.last is None else self.last.sizes

    def trained(self) -> None:
        """Remember that the rows drawn last went into a step."""
        if self.last is not None:
            self.last.was_trained = True

    @never_raises
    def end(self, epoch: Pass, *, is_complete: bool) -> None:
        """Note an epoch."""
        self.running.pop(id(epoch), None)
        if epoch.is_written or not (epoch.count or not epoch.is_indexed):
            return
        epoch.is_written = True
        self.notes.write(epoch.event(is_complete=is_complete))

    @never_raises
    def end_all(self) -> None:
        """Note the epochs that are still under way."""
        for epoch in list(self.running.values()):
            self.end(epoch, is_complete=False)


def fingerprint(data: Any, depth: int = 2) -> int:
    """Return a checksum that tells shards of a data set apart, without drawing a sample."""
    if isinstance(data, torch.Tensor):
        return checksum(data, zlib.crc32(repr(tuple(data.shape)).encode()), 1 << 14)
    if isinstance(data, (str, bytes, int, float, bool, type(None))):
        return zlib.crc32(repr(data).encode())
    if isinstance(data, Subset):
        return fingerprint(data.dataset, depth)  # the indices are mapped
    if hasattr(data, "tobytes") and hasattr(data, "shape"):
        return zlib.crc32(data[:64].tobytes() if data.shape else b"")
    if depth < 0:
        return zlib.crc32(type(data).__name__.encode())
    if isinstance(data, (list, tuple)):
        parts: list[Any] = [len(data), *data[:4], *data[-4:]]
    elif isinstance(data, dict):
        parts = [len(data), *list(data.items())[:64]]
    else:
        parts = [type(data).__name__, *sorted(getattr(data, "__dict__", {}).items())]
    return zlib.crc32(repr([fingerprint(part, depth - 1) for part in parts]).encode())


def watch(notes: Notes) -> LoaderNotes:
    """Follow the DataLoaders of this process."""
    found = LoaderNotes(notes)
    base: Any = dataloader._BaseDataLoaderIter

    @around(DataLoader, "__init__")
    def made(make: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        with contextlib.suppress(Exception):
            vars(self)["_dpdemo_at"] = found.names.name(self)

    @around(base, "__init__")
    def begun(init: Any, self: Any, loader: Any) -> None:
        found.begin(self, loader)
        init(self, loader)

    @around(base, "_reset")
    def begun_again(reset: Any, self: Any, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            found.begin(self, loader)
        reset(self, loader, first_iter)

    @around(base, "_next_index")
    def drawn(draw: Any, self: Any) -> Any:
        indices = draw(self)
        epoch = vars(self).get("_dpdemo_epoch")
        if epoch is not None:
            epoch.pending.append(indices)
        return indices

    @around(base, "__next__")
    def taken(take: Any, self: Any) -> Any:
        epoch: Pass | None = vars(self).get("_dpdemo_epoch")
        if epoch is None:
            return take(self)
        try:
            batch = take(self)
        except StopIteration:
            found.end(epoch, is_complete=True)
            raise
        with contextlib.suppress(Exception):
            epoch.consumed(batch)
        found.last = epoch
        return batch

    base.next = taken
    return found

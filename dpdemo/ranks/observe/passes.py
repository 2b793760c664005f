"""Passes over a loader: the batches that a loop got, by index or content, and those trained on."""

import operator
import re
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import BatchSampler, Subset

from dpdemo.ranks.events import Epoch
from dpdemo.ranks.observe.datasets import (
    contents,
    fingerprint,
    nested,
    part_of,
    parts_of,
    repeats,
    split_of,
    splits_by_rank,
    splitter_of,
    whole_length,
)
from dpdemo.ranks.observe.fetches import Board
from dpdemo.ranks.observe.notes import users_line
from dpdemo.ranks.observe.rows import Fingerprints

MAX_ROWS, MAX_LISTS, _MAX_LABELS = 100_000, 16, 1024
_MAX_SIZES, _MAX_HELD = 8, 2
_MOST_WAITING = 1 << 14
"""Rows that were drawn and are kept until a training step takes them: a program may read far ahead."""


@dataclass(eq=False)
class Batch:
    """A batch that a loop got: its samples' indices and fingerprints, where they are known."""

    indices: list[int | str] | None
    prints: Fingerprints | None
    start: int = 0  # number of samples that the pass had given before
    used: set[int] = field(default_factory=set)
    """Places of the rows that were trained on, where they are known."""
    num_used: int = 0
    is_guessed: bool = False  # whether another batch may have been trained on in its place
    is_followed: bool = False  # whether a training step came before the pass's next batch

    @property
    def is_used(self) -> bool:
        """Whether all of its rows were trained on."""
        return self.num_used >= len(self)

    def __len__(self) -> int:
        if self.indices is not None:
            return len(self.indices)
        return len(self.prints.rows) if self.prints is not None else 1

    def use(self, places: Sequence[int] | None, number: int) -> None:
        """Remember that rows were trained on: at these places, or so many at unknown ones.

        `collate_fn` may make two rows of each sample: all first ones, and then all second ones.
        """
        if places is not None:
            self.used.update(place % len(self) for place in places)
            self.num_used = max(self.num_used, len(self.used))
        else:
            self.num_used = min(len(self), self.num_used + number)
            if self.num_used == len(self):
                self.used.update(range(len(self)))


_DESCRIBED = (
    *("samplers", "splitter", "splits", "is_distributed", "is_shuffled", "set_epoch", "seed", "repeats"),
    *("dataset", "contents", "part", "split", "num_workers", "is_persistent"),
)
_COUNTED = "at", "number", "count", "sum", "is_indexed", "is_joined", "is_inner"
"""Attributes of a pass that `Epoch` has, too: of its loader, which another loader takes over, and its own."""


class Pass:
    """One pass over a loader, as far as it went."""

    def __init__(self, loader: Any, number: int, at: str) -> None:
        self.loader, self.number, self.at = loader, number, at
        self.describe(loader)
        self.pending: deque[Any] = deque()  # indices of batches that workers load in advance
        self.waiting: deque[Batch] = deque()
        """Batches that no training step has taken yet."""
        self.num_waiting = 0  # rows of those
        self.places: dict[int, tuple[Batch, int] | None] = {}
        """By the fingerprint of one column, the row that holds it; None if several do."""
        self.last: Batch | None = None
        self.drawn: list[int | str] = []
        self.rows: list[int] = []
        self.sizes: list[int] = []
        self.used: list[int] = []
        self.labels: dict[str, str] = {}
        self.tensors: tuple[int, ...] = ()  # of the last batch, how many elements each tensor has
        self.drawn_at = 0  # the number of its last batch among those of all passes
        self.count = self.sum = self.num_batches = self.num_used = self.num_followed = 0
        self.is_indexed, self.has_rows, self.are_used_known = self.is_map, True, True
        self.is_inner = self.was_trained = self.is_over = self.is_noted = self.is_exhausted = False
        self.is_attributed = False  # whether a call of a wrapped module took rows of it
        self.is_dispatched = False  # whether one rank's loader reads for all of them
        self.board = Board()
        self.inners: list[Pass] = []  # the passes over loaders that this one reads

    def describe(self, loader: Any) -> None:
        """Read what the loader and its samplers say of themselves."""
        samplers = nested(loader)
        plain = [each for each in samplers if type(each) is not BatchSampler] or samplers
        splits = [each for each in samplers if splits_by_rank(each)]
        shuffles = [each for each in samplers if hasattr(each, "set_epoch")]
        self.samplers = tuple(type(each).__name__ for each in plain)
        self.splitter = type(splits[0]).__name__ if splits else ""
        self.splits = {type(each).__name__: parts_of(each) for each in splits}
        self.is_distributed = bool(splits) or bool(shuffles)
        self.is_shuffled = any(bool(getattr(each, "shuffle", False)) for each in shuffles)
        epochs = [getattr(each, "epoch", None) for each in shuffles]
        self.set_epoch = next((each for each in epochs if type(each) is int), None)
        seeds = [getattr(each, "seed", None) for each in samplers]
        self.seed = next((each for each in seeds if type(each) is int), None)
        self.is_joined = False
        self.repeats = next((type(each).__name__ for each in samplers if repeats(each)), "")
        self.batches = getattr(loader, "_index_sampler", ())
        self.data = getattr(loader, "dataset", None)
        self.is_map = getattr(loader, "_dataset_kind", 1) == 0
        if not self.is_map and (part := splitter_of(loader, self.data)):
            self.splitter = part
        self.dataset, self.contents = fingerprint(self.data), contents(self.data)
        self.part = part_of(self.data)
        self.split = split_of(self.data)
        self.num_workers = int(getattr(loader, "num_workers", 0) or 0)
        self.is_persistent = bool(getattr(loader, "persistent_workers", False))

    def take_over(self, inner: "Pass") -> None:
        """Describe the loader inside this one, which knows the samplers and the data."""
        inner.is_inner = True
        inner.is_dispatched = hasattr(self.loader, "_fetch_batches")  # accelerate's DataLoaderDispatcher
        self.inners.append(inner)
        inner.splitter = self.splitter or inner.splitter
        for name in (*_DESCRIBED, "data", "batches"):
            setattr(self, name, getattr(inner, name))

    def drew(self, batch: Any, prints: Fingerprints | None, indices: list[int | str] | None) -> None:
        """Add a batch that the loop has got."""
        leaves = torch.utils._pytree.tree_leaves(batch)
        self.tensors = tuple(each.numel() for each in leaves if isinstance(each, torch.Tensor))[:_MAX_SIZES]
        self._keep_last()
        self.last = found = Batch(indices, prints, self.count)
        self.waiting.append(found)
        self.num_waiting += len(found)
        if prints is not None and not self.is_inner:
            self._place(found, prints)
        self.count += len(found)
        self.num_batches += 1
        self.is_indexed &= indices is not None
        self.has_rows &= prints is not None
        keys: Any = indices if indices is not None else prints.rows if prints is not None else ()
        self.sum = zlib.crc32(repr(list(keys)).encode(), self.sum)
        if self.number <= MAX_LISTS and self.count <= MAX_ROWS:
            self.sizes.append(len(found))
            self.drawn += indices or ()
            if prints is not None and (indices is None or self.number <= _MAX_HELD):
                self.rows += prints.rows
                if len(self.labels) < _MAX_LABELS:
                    self.labels |= {str(row): label for row, label in prints.labels.items()}

    def _place(self, batch: Batch, prints: Fingerprints) -> None:
        """Remember which row of a batch holds what, unless another row holds the same."""
        places = self.places
        for column in prints.columns:
            for place, row in enumerate(column):
                here = (batch, place)
                places[row] = here if places.setdefault(row, here) == here else None
        while len(places) > _MOST_WAITING:
            del places[next(iter(places))]

    def find(self, column: Mapping[int, int]) -> dict[int, tuple[Batch, int]]:
        """Return by their places in a call the rows that hold what one column of it holds."""
        found = ((place, self.places.get(row)) for place, row in column.items())
        return {place: hit for place, hit in found if hit is not None}

    def _keep_last(self) -> None:
        """Add up what was trained on of the batch before."""
        batch = self.last
        if batch is not None:
            self.num_followed += batch.is_followed
        while self.waiting and (self.waiting[0].is_used or self.num_waiting > _MOST_WAITING):
            self.close(self.waiting.popleft())

    def take_all(self) -> None:
        """Count all batches that wait as trained on."""
        while self.waiting:
            batch = self.waiting.popleft()
            batch.use(None, len(batch))
            self.close(batch)

    def close(self, batch: Batch) -> None:
        """Add up what was trained on of a batch that no step will take any more."""
        self.num_used += batch.num_used
        self.num_waiting -= len(batch)
        if len(batch.used) != batch.num_used or batch.is_guessed:
            self.are_used_known = False
        elif self.number <= MAX_LISTS and self.count <= MAX_ROWS:
            self.used += (batch.start + place for place in sorted(batch.used))

    def known(self, indices: Any) -> list[int | str] | None:
        """Return the indices of a batch's samples in the whole data set; None if they are none."""
        found = _names(indices)
        data = self.data
        if found is None:
            return None
        while isinstance(data, Subset):
            found, data = [int(data.indices[index]) for index in found], data.dataset
        return found

    def is_whole(self) -> bool:
        """Return whether all batches were drawn: a loop that counts them does not ask for one more."""
        try:
            return 0 < self.num_batches == len(self.batches)
        except (TypeError, NotImplementedError):
            return False

    def event(self, *, is_complete: bool) -> Epoch:
        """Return what is noted of it."""
        self._keep_last()
        if self.last is not None and 2 * self.num_followed > self.num_batches and not self.num_used:
            for batch in self.waiting:  # another loader's batches were trained on in the same steps
                if batch.is_followed and not batch.num_used:
                    batch.use(None, len(batch))
        for batch in self.waiting:
            self.close(batch)
        is_short = self.number <= MAX_LISTS and self.count <= MAX_ROWS
        is_part = self.num_used < self.count
        return Epoch(
            **{name: getattr(self, name) for name in (*_DESCRIBED, *_COUNTED)},
            length=whole_length(self.data, is_indexed=self.is_indexed and self.is_map),
            drawn=tuple(self.drawn) if is_short and self.is_indexed else None,
            sampler=self.samplers[0] if self.samplers else "",
            is_complete=is_complete or self.is_whole(),
            was_trained=self.was_trained or self.num_used > 0,
            rows=tuple(self.rows) if is_short and self.has_rows and len(self.rows) == self.count else None,
            sizes=tuple(self.sizes) if is_short else (),
            trained=self.num_used,
            used=tuple(self.used) if is_short and is_part and self.are_used_known else None,
            labels=self.labels if self.has_rows else {},
            random=self.board.states()
            | {k: v for each in self.inners for k, v in each.board.states().items()},
        )


def _names(indices: Any) -> list[Any] | None:
    """Return the samples of a batch as whole numbers or words; None if they are something else."""
    if isinstance(indices, torch.Tensor):
        indices = indices.reshape(-1).tolist()
    one_by_one = [indices] if isinstance(indices, str) or not hasattr(indices, "__iter__") else indices
    try:
        return [each if isinstance(each, str) else _name(each) for each in one_by_one]
    except TypeError:
        return None


def _name(index: Any) -> int | str:
    """Return a whole number of any library, or the id of lhotse's cuts: a repeated one has an ending.

    Raises:
        TypeError: for anything else.

    """
    name = getattr(index, "id", None)
    return re.sub(r"_dup\d+$", "", name) if isinstance(name, str) else operator.index(index)


def line_of(loader: Any) -> str:
    """Return the line that made a loader, or that which begins to draw from it."""
    try:
        return str(vars(loader)["_dpdemo_at"])
    except (TypeError, KeyError):
        return users_line()


def read_before(inner: Pass, prints: Fingerprints | None) -> list[int | str] | None:
    """Return the indices of a batch that came through another loader.

    It is found by its content, or taken as the next one if rows were changed on their way.
    """
    if not inner.is_indexed or not inner.waiting:
        return None
    places = [place for place, each in enumerate(inner.waiting) if prints is None or _same(each, prints)]
    front = inner.waiting[0]
    if not places and prints is not None and len(front) == len(prints.rows) and not inner.is_dispatched:
        places = [0]
    if not places:
        return None
    for _ in range(places[0]):
        inner.waiting.popleft()
    return inner.waiting.popleft().indices


def _same(batch: Batch, prints: Fingerprints) -> bool:
    return batch.prints is None or batch.prints.rows == prints.rows

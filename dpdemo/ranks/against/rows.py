"""Note the samples of each batch before `collate_fn`, or give one process the samples of all ranks."""

from __future__ import annotations

import contextlib
import copy
import inspect
import random
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, dataloader

from dpdemo.ranks.against.numbers import checksum
from dpdemo.ranks.events import NotedBatch
from dpdemo.ranks.observe.notes import around, users_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from dpdemo.ranks.against.state import State

MAX_EPOCH = 64
"""Batches of an epoch whose last step is compared, too."""
_IN_PROCESS = {
    "num_workers": 0,
    "persistent_workers": False,
    "prefetch_factor": None,
    "multiprocessing_context": None,
    "timeout": 0,
    "worker_init_fn": None,
}
_NO_ROWS = "a batch of the ranks cannot be joined"


class Pass:
    """One pass over a DataLoader."""

    def __init__(self, loader: Any, number: int, at: str) -> None:
        self.at, self.number, self.k = at, number, 0
        self.made: str = vars(loader).get("_dpdemo_made", "")
        self.is_trained = False
        self.is_repeated = False
        """Whether `collate_fn` was seen to make the ranks' batches again."""
        self.collate: Callable[[Any], Any] = lambda data: data
        self.at_once = _batches_at_once()
        """The batches that one step of all ranks takes from this loader."""
        self.length: int | None = None
        with contextlib.suppress(Exception):
            self.length = len(loader if loader.batch_sampler is None else loader.batch_sampler)


def _batches_at_once() -> int:
    """Return how many ranks this process reads batches for, as accelerate's dispatching loader does."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        reader: Any = frame.f_locals.get("self")
        if type(reader).__name__ == "DataLoaderDispatcher" and not reader.split_batches:
            return int(reader.state.num_processes)
        frame = frame.f_back
    return 1


def watch(state: State) -> None:
    """Follow the DataLoaders of this process; all draw in the process itself."""
    iterator: Any = dataloader._SingleProcessDataLoaderIter
    signature = inspect.signature(DataLoader.__init__)

    @around(DataLoader, "__init__")
    def made(init: Any, /, self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs).arguments
        del given["self"]
        init(self, **{**given, **_IN_PROCESS})
        at = users_line()
        state.counts["made", at] += 1
        vars(self)["_dpdemo_made"] = f"{at} #{state.counts['made', at]}"

    @around(iterator, "__init__")
    def begun(init: Any, /, self: Any, loader: Any) -> None:
        init(self, loader)
        at = users_line()
        state.counts["pass", at] += 1
        self._dpdemo_pass = this = Pass(loader, state.counts["pass", at], at)
        this.collate = self._dataset_fetcher.collate_fn
        if not state.settings.is_replay:
            self._dataset_fetcher.collate_fn = _noting(state, this, is_collated=self._auto_collation)

    @around(iterator, "_next_data")
    def next_data(take: Any, /, self: Any) -> Any:
        this: Pass = self._dpdemo_pass
        if torch.is_grad_enabled():
            state.pass_ = this
            state.drawn[this] = None
        try:
            if not state.settings.is_replay or (this.at, this.number) not in state.ranks.trained:
                return take(self)
            batch = _of_all_ranks(state, this)
        except StopIteration:
            state.drawn.pop(this, None)
            raise
        finally:
            this.k += 1
        if self._pin_memory:
            pinned: Any = torch.utils.data._utils.pin_memory
            batch = pinned.pin_memory(batch, self._pin_memory_device)
        return batch

    if state.settings.is_replay:
        _with_length_of_ranks(state)


def _with_length_of_ranks(state: State) -> None:
    @around(DataLoader, "__len__")
    def length(own: Any, /, self: Any) -> Any:
        found = state.ranks.lengths.get(vars(self).get("_dpdemo_made", ""))
        if found is None:
            return own(self)
        return found * (len(state.ranks.owners) if state.settings.in_turns else 1)


def _noting(state: State, this: Pass, *, is_collated: bool) -> Callable[[Any], Any]:
    """Return the loader's `collate_fn`, which notes what it gets."""

    def collate(data: Any) -> Any:
        copied, before = _copied(data), _random_states()
        batch = this.collate(data)
        if not state.is_done and (this.k < MAX_EPOCH or not state.window.rows or this.is_trained):
            try:
                is_repeated = is_collated and _random_states() == before
                samples = copied if is_collated else ()
                stored = state.store.add(samples if is_repeated else (samples, _copied(batch)))
                total = checksum(batch)
                k, turn = divmod(this.k, this.at_once)
                state.notes.write(NotedBatch(this.at, this.number, k, is_repeated, total, stored, turn))
            except Exception as error:  # noqa: BLE001 - samples may be anything
                state.remark(f"samples could not be kept: {_named(error)} ({this.at})", is_fatal=True)
        return batch

    return collate


def _random_states() -> tuple[Any, ...]:
    """Return the states of the generators that a `collate_fn` may draw from."""
    numpy = sys.modules.get("numpy.random")
    states: Any = () if numpy is None else numpy.get_state()
    return bytes(torch.default_generator.get_state().tolist()), random.getstate(), repr(states)


def _copied(value: Any) -> Any:
    """Copy views: pickle would write all of their storage, a whole data set for each sample."""

    def leaf(each: Any) -> Any:
        if type(each) is not torch.Tensor:
            return each
        is_view = each.untyped_storage().nbytes() > each.numel() * each.element_size()
        return each.clone() if is_view else each

    return torch.utils._pytree.tree_map(leaf, value)


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def _of_all_ranks(state: State, this: Pass) -> Any:
    """Return the union of the ranks' k-th batches, by the program's own collate_fn if that draws nothing."""
    rounds, number = state.ranks.batches.get((this.at, this.number), {}), this.k
    if state.settings.in_turns:
        k, turn = divmod(number, len(state.ranks.owners))
        parts = dict(sorted(rounds.get(k, {}).items())[turn : turn + 1])
    else:
        parts = dict(sorted(rounds.get(number, {}).items()))
    if not parts:
        raise StopIteration
    samples = [state.ranks.stores[rank].read(event.stored) for (rank, _), event in parts.items()]
    if not next(iter(parts.values())).is_collated:
        batches = [batch for _, batch in samples]
        try:
            return joined(batches)
        except ValueError:
            if not all(own for own, _ in samples):
                raise
            return joined(batches, this.collate([each for own, _ in samples for each in own]))
    if not this.is_repeated:
        this.is_repeated = True
        pairs = zip(samples, parts.values(), strict=True)
        if any(checksum(this.collate(copy.copy(own))) != event.sum for own, event in pairs):
            state.remark(f"collate_fn gives other numbers each time ({this.at})", is_fatal=True)
    return this.collate([each for own in samples for each in own])


def joined(batches: Sequence[Any], like: Any = None) -> Any:
    """Join the batches of the ranks, whatever they are made of.

    Args:
        batches: one of each rank.
        like: a batch of all rows, padded as the program does, but with other numbers.

    Raises:
        ValueError: if tensors do not fit, as where each rank pads its rows to another length.

    """
    first = batches[0]
    if len(batches) == 1:
        return first
    if isinstance(first, torch.Tensor):
        is_ragged = first.ndim and len({each.shape[1:] for each in batches}) > 1
        return _padded(batches, like) if is_ragged else torch.cat([*batches]) if first.ndim else first
    if hasattr(first, "items"):
        together = copy.copy(first)
        for key in first:
            together[key] = joined([each[key] for each in batches], None if like is None else like[key])
        return together
    if isinstance(first, (list, tuple)):
        if any(isinstance(each, (torch.Tensor, list, tuple)) or hasattr(each, "items") for each in first):
            columns = zip(*batches, strict=True)
            parts = [joined(*pair) for pair in zip(columns, like or [None] * len(first), strict=True)]
            return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
        return type(first)(each for own in batches for each in own)
    return first


def _padded(batches: Sequence[torch.Tensor], like: Any) -> torch.Tensor:
    """Put batches into one that is padded, at the side where more of its numbers are the same."""
    rows = [len(each) for each in batches]
    is_like = isinstance(like, torch.Tensor) and len(like) == sum(rows)
    is_like = is_like and all(
        a >= b for each in batches for a, b in zip(like.shape[1:], each.shape[1:], strict=True)
    )
    if not is_like:
        raise ValueError(f"{_NO_ROWS}: {', '.join(str(list(each.shape)) for each in batches)}")
    whole: torch.Tensor = like.clone()
    for part, own in zip(torch.split(whole, rows), batches, strict=True):
        left = part[tuple(slice(size) for size in own.shape)]
        right = part[tuple(slice(-size, None) for size in own.shape)]
        max(left, right, key=lambda view: int((view == own).sum())).copy_(own)
    return whole

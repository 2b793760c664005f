"""The samples that all ranks drew in an epoch of a loader, with names that mean the same on each rank.

A sample's name is its index, where all ranks index one data set; else the fingerprint of what it holds. So
parts of a set that were made on each rank are one set again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dpdemo.ranks.events import Epoch, Event

Name = int | str


@dataclass(frozen=True)
class Together:
    """One epoch of a loader on all ranks."""

    epochs: tuple[Epoch, ...]
    drawn: tuple[tuple[Name, ...], ...]  # names of what each rank drew, in order
    by_index: bool
    length: int | None  # samples of the whole data set, if that is known
    are_own: bool = False  # whether each rank indexes a set of its own

    @property
    def is_listed(self) -> bool:
        """Whether the names are known: of an epoch that is too long there is a checksum alone."""
        return all(len(names) == epoch.count for names, epoch in zip(self.drawn, self.epochs, strict=True))

    @property
    def first(self) -> Epoch:
        """The epoch of the first rank."""
        return self.epochs[0]

    @property
    def is_complete(self) -> bool:
        """Whether each rank came to its end."""
        return all(epoch.is_complete for epoch in self.epochs)

    @property
    def was_trained(self) -> bool:
        """Whether each rank trained on some of it."""
        return all(epoch.was_trained for epoch in self.epochs)

    @cached_property
    def times(self) -> Counter[Name]:
        """How often each sample was drawn by all ranks together."""
        return Counter(name for names in self.drawn for name in names)

    @cached_property
    def trained(self) -> tuple[tuple[Name, ...], ...] | None:
        """Names of what each rank trained on; None if that is not known for all."""
        found = []
        for epoch, names in zip(self.epochs, self.drawn, strict=True):
            if epoch.trained >= epoch.count:
                found.append(names)
            elif epoch.used is not None:
                found.append(tuple(names[place] for place in epoch.used if place < len(names)))
            else:
                return None
        return tuple(found)

    @property
    def num_repeated(self) -> int:
        """Number of draws that repeat a sample."""
        return self.times.total() - len(self.times)

    @property
    def num_left_out(self) -> int:
        """Number of samples that no rank drew, as far as is known."""
        return max(0, (self.length or 0) - len(self.times))

    @property
    def num_padded(self) -> int:
        """The most draws that a right program makes twice to fill its last batches: a global batch."""
        return sum(max(epoch.sizes, default=1) for epoch in self.epochs)


def epochs_of(ranks: Sequence[Sequence[Event]]) -> Iterator[Together]:
    """Yield the epochs that all of these ranks made over a loader, with names, in order."""
    noted = [[event for event in events if isinstance(event, Epoch)] for events in ranks]
    inner = [epoch for mine in noted for epoch in mine if epoch.is_inner]
    keyed = [{(epoch.at, epoch.number): epoch for epoch in mine if not epoch.is_inner} for mine in noted]
    seen: dict[str, set[Name]] = {}
    found = []
    for key in keyed[0] if keyed else ():
        row = tuple(epochs[key] for epochs in keyed if key in epochs)
        if len(row) == len(keyed):
            others = [
                epochs.get((key[0], key[1] + 1)) or epochs.get((key[0], key[1] - 1)) for epochs in keyed
            ]
            named = named_epoch(row, inner, {at: each for at, each in enumerate(others) if each is not None})
            found.append(named)
            if not named.by_index:
                seen.setdefault(key[0], set()).update(named.times)
    for each in found:
        known = seen.get(each.first.at, set())
        if each.length is None and not each.are_own and len(known) > len(each.times):
            yield Together(each.epochs, each.drawn, each.by_index, len(known))
        else:
            yield each


def named_epoch(
    row: Sequence[Epoch], inner: Iterable[Epoch] = (), others: Mapping[int, Epoch] | None = None
) -> Together:
    """Name the samples of one epoch of all ranks, as far as they are known."""
    epochs = tuple(row)
    indexed = [epoch.drawn for epoch in epochs if epoch.is_indexed and epoch.drawn is not None]
    held = [epoch.rows for epoch in epochs if epoch.rows is not None]
    if len(indexed) == len(epochs) and not _are_own(epochs, others or {}):
        return Together(epochs, tuple(indexed), True, _length(epochs))
    if len(indexed) == len(epochs):
        return _of_own_sets(epochs, tuple(indexed), held)
    if len(held) < len(epochs):
        return _unlisted(epochs)
    at = epochs[0].at
    indices = indices_by_content(
        [each for each in inner if each.at == at and each.number == epochs[0].number]
    )
    if indices and all(row in indices for rows in held for row in rows):
        names: tuple[tuple[Name, ...], ...] = tuple(tuple(indices[row] for row in rows) for rows in held)
        lengths = {each.length for each in inner if each.at == at}
        return Together(epochs, names, True, next(iter(lengths)) if len(lengths) == 1 else None)
    lengths = {epoch.length for epoch in epochs}
    return Together(epochs, tuple(held), False, next(iter(lengths)) if len(lengths) == 1 else None)


def _length(epochs: Sequence[Epoch]) -> int | None:
    """Return the number of samples of the set that all ranks draw from: of one Subset, or the whole."""
    parts = {epoch.part for epoch in epochs}
    return epochs[0].part[0] if len(parts) == 1 and epochs[0].part else epochs[0].length


def _are_own(epochs: Sequence[Epoch], others: Mapping[int, Epoch]) -> bool:
    """Return whether ranks index sets of their own: one index names different samples.

    An index whose sample changes from epoch to epoch, too, tells nothing: rows are drawn at random from it.
    """
    are_apart = len({epoch.dataset for epoch in epochs}) > 1
    have_others = len({epoch.contents for epoch in epochs}) > 1
    held = [_held(epoch) for epoch in epochs]
    if not all(held):
        return are_apart or have_others
    common = [(held[0][name], other[name]) for other in held[1:] for name in other if name in held[0]]
    if not common:  # a data set that knows its rank's number is one set all the same
        return have_others
    if all(one == other for one, other in common):
        return False
    are_kept = all(
        place in others and _is_kept(held[place], _held(others[place])) for place in range(len(epochs))
    )
    return are_apart or have_others or are_kept


def _held(epoch: Epoch) -> dict[Name, int]:
    """Return the fingerprint of each index."""
    return dict(zip(epoch.drawn or (), epoch.rows or (), strict=False))


def _is_kept(held: Mapping[Name, int], later: Mapping[Name, int]) -> bool:
    """Return whether each index names in a later epoch what it named before."""
    common = held.keys() & later.keys()
    return len(common) > 1 and all(held[name] == later[name] for name in common)


def _of_own_sets(
    epochs: tuple[Epoch, ...], indexed: tuple[tuple[Name, ...], ...], held: Sequence[tuple[int, ...]]
) -> Together:
    """Name the samples of sets that were made on each rank, by what they hold."""
    if len(held) < len(epochs):
        return _unlisted(epochs, are_own=True)
    names = tuple(held)
    distinct = [set(each) for each in names]
    lengths = [epoch.length for epoch in epochs]
    are_whole = [len(set(mine)) == length for mine, length in zip(indexed, lengths, strict=True)]
    length = None
    if all(are_whole):
        length = len(set.union(*distinct))
    elif None not in lengths and sum(map(len, distinct)) == len(set.union(*distinct)):
        length = sum(each or 0 for each in lengths)
    return Together(epochs, names, False, length, are_own=True)


def _unlisted(epochs: tuple[Epoch, ...], *, are_own: bool = False) -> Together:
    by_index = all(epoch.is_indexed for epoch in epochs)
    return Together(epochs, tuple(() for _ in epochs), by_index, _length(epochs), are_own)


def indices_by_content(inner: Iterable[Epoch]) -> dict[int, Name]:
    """Return the index of each fingerprint that a loader read for all ranks, unless two samples are alike."""
    found: dict[int, Name] = {}
    for epoch in inner:
        for row, index in zip(epoch.rows or (), epoch.drawn or (), strict=False):
            if found.setdefault(row, index) != index:
                return {}
    return found


def histogram(times: Mapping[Name, int]) -> dict[int, int]:
    """Return by number of draws how many samples were drawn so often, the most often first."""
    return dict(sorted(Counter(times.values()).items(), reverse=True))

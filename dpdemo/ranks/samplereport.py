"""The report's part on samples, from the events of all ranks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from dpdemo.ranks.events import Epoch, Event, Fed, ModelMade, loader_name
from dpdemo.ranks.samples import Name, Together, epochs_of, histogram, indices_by_content
from dpdemo.results.ranksamples import KEPT, UNLOADED, Coverage, RankEpoch, RankSamples

_MOST_LISTED, _MOST_NAMED = 20_000, 12


def renumbered(ranks: Sequence[Sequence[Event]]) -> list[list[Event]]:
    """Count only the loaders that some rank drew from, where a line made several: libraries rebuild them."""
    found = {event.at for events in ranks for event in events if isinstance(event, Epoch)}
    names: dict[str, str] = {}
    for line, same in groupby(sorted(found, key=_numbered), key=lambda at: _numbered(at)[0]):
        names |= {at: loader_name(line, number) for number, at in enumerate(same)}

    def renamed(event: Event) -> Event:
        if isinstance(event, Epoch):
            return replace(event, at=names[event.at])
        return replace(event, kept=names.get(event.kept, "")) if isinstance(event, Fed) else event

    return [list(map(renamed, events)) for events in ranks]


def _numbered(at: str) -> tuple[str, int]:
    line, _, number = at.removesuffix(")").partition(" (loader ")
    return line, int(number or 1)


def read_for_all(ranks: Sequence[Sequence[Event]]) -> dict[str, dict[int, Name]]:
    """Return for each loader that one rank reads for all of them the index of each fingerprint."""
    inner: dict[str, list[Epoch]] = {}
    for events in ranks:
        for event in events:
            if isinstance(event, Epoch) and event.is_inner:
                inner.setdefault(event.at, []).append(event)
    return {at: indices_by_content(epochs) for at, epochs in inner.items()}


def samples_of(events: Sequence[Event], indices: Mapping[str, Mapping[int, Name]]) -> tuple[RankSamples, ...]:
    """Sum up what one rank drew, loader by loader, and the rows that came from none."""
    by_loader: dict[str, list[Epoch]] = {}
    for event in events:
        if isinstance(event, Epoch) and not event.is_inner:
            by_loader.setdefault(event.at, []).append(event)
    made = {event.model: event for event in events if isinstance(event, ModelMade)}
    unloaded = [event for event in events if isinstance(event, Fed)]
    return (
        *(_of_loader(at, epochs, indices.get(at, {})) for at, epochs in by_loader.items()),
        *(_of_model(event, made.get(event.model)) for event in unloaded),
    )


def _of_loader(at: str, epochs: Sequence[Epoch], indices: Mapping[int, Name]) -> RankSamples:
    is_indexed = all(epoch.is_indexed or _are_in(epoch, indices) for epoch in epochs if epoch.count)
    left = _MOST_LISTED
    passes = []
    for epoch in epochs:
        names = epoch.drawn if epoch.is_indexed else shown(epoch.rows, epoch.labels)
        if not epoch.is_indexed and is_indexed:
            names = tuple(indices[row] for row in epoch.rows or ())
        is_listed = names is not None and epoch.count <= left
        left -= epoch.count if is_listed else 0
        batches = cut(names or (), epoch.sizes) if is_listed else ()
        passes.append(RankEpoch(epoch.number, epoch.count, epoch.trained, batches))
    return RankSamples(
        at,
        len(epochs),
        sum(epoch.count for epoch in epochs),
        epochs[0].length,
        sum(epoch.trained for epoch in epochs),
        "index" if is_indexed else "content",
        passes=tuple(passes),
        noun="sample" if is_indexed else "row",
    )


def _are_in(epoch: Epoch, indices: Mapping[int, Name]) -> bool:
    return epoch.rows is not None and all(row in indices for row in epoch.rows)


def _of_model(event: Fed, made: ModelMade | None) -> RankSamples:
    name = f"{made.wrapper}({made.name}) at {made.at}" if made is not None else f"a module at {event.at}"
    is_listed = event.rows is not None and event.count <= _MOST_LISTED
    batches = cut(shown(event.rows, event.labels) or (), event.sizes) if is_listed else ()
    passes = (RankEpoch(0, event.count, event.count, batches),)
    kind = KEPT if event.kept else UNLOADED
    name += f" from the loader at {event.kept}" if event.kept else ""
    return RankSamples(name, 0, event.count, None, event.count, "content", kind, passes=passes, noun="row")


def cut(names: Sequence[Name], sizes: Sequence[int]) -> tuple[tuple[Name, ...], ...]:
    """Return the names batch by batch."""
    found, start = [], 0
    for size in sizes:
        found.append(tuple(names[start : start + size]))
        start += size
    return tuple(found)


def shown(rows: Sequence[Name] | None, labels: Mapping[str, str]) -> tuple[Name, ...] | None:
    """Write fingerprints: what short rows hold, or 16 digits."""
    if rows is None:
        return None
    return tuple(
        row if isinstance(row, str) else labels.get(str(row), f"#{row & (1 << 64) - 1:016x}") for row in rows
    )


def coverage(ranks: Sequence[Sequence[Event]]) -> Iterator[Coverage]:
    """Count the samples that all ranks drew in each loader's first whole epoch, or else in a broken one."""
    told = set()
    epochs = [epoch for epoch in epochs_of(ranks) if epoch.is_listed and any(epoch.drawn)]
    for epoch in sorted(epochs, key=lambda each: not each.is_complete):
        at = epoch.first.at
        if at not in told:
            told.add(at)
            yield _coverage(epoch, epoch.drawn)
            trained = epoch.trained
            if trained is not None and trained != epoch.drawn and any(trained):
                yield _coverage(epoch, trained, "Trained on in epoch 1")
    yield from _unloaded(ranks)


def _coverage(epoch: Together, drawn: Sequence[Sequence[Name]], of: str = "") -> Coverage:
    together = Together(epoch.epochs, tuple(map(tuple, drawn)), epoch.by_index, epoch.length, epoch.are_own)
    times = together.times
    labels = {key: text for each in epoch.epochs for key, text in each.labels.items()}
    repeated = [name for name, count in times.items() if count > 1]
    left_out: Sequence[Name] = ()
    if epoch.by_index and epoch.length is not None and 0 < together.num_left_out <= _MOST_NAMED:
        left_out = [name for name in range(epoch.length) if name not in times]
    plain = repeated if epoch.by_index else shown(repeated, labels) or ()
    return Coverage(
        epoch.first.at,
        epoch.length,
        times.total(),
        together.num_repeated,
        together.num_left_out,
        len(times),
        histogram(times),
        of or f"Epoch {epoch.first.number}",
        "sample" if epoch.by_index or epoch.are_own else "row",
        tuple(sorted(plain, key=_order)) if len(repeated) <= _MOST_NAMED else (),
        tuple(left_out),
        epoch.are_own,
        epoch.is_complete,
    )


def _order(name: Name) -> tuple[float, str]:
    text = str(name)
    return float(text) if text.isdigit() else float("inf"), text


def _unloaded(ranks: Sequence[Sequence[Event]]) -> Iterator[Coverage]:
    """Count the rows that entered a module and came from no loader."""
    fed = [
        {(event.model, event.kept): event for event in events if isinstance(event, Fed)} for events in ranks
    ]
    made = {event.model: event for events in ranks for event in events if isinstance(event, ModelMade)}
    for key in fed[0] if fed else ():
        row = [events[key] for events in fed if key in events]
        rows = [event.rows for event in row if event.rows is not None]
        if len(rows) < len(ranks) or not any(rows):
            continue
        labels = {key: text for event in row for key, text in event.labels.items()}
        as_epochs = tuple(
            Epoch(
                _of_model(event, made.get(key[0])).at,
                1,
                event.count,
                event.sum,
                labels=labels,
                trained=event.count,
            )
            for event in row
        )
        yield _coverage(Together(as_epochs, tuple(rows), False, None), rows, "All steps")

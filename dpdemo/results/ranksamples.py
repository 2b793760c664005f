"""The samples of ranks: how often each was drawn and trained on, by whom, and which were left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dpdemo.results.devices import spans
from dpdemo.results.rankparts import Part
from dpdemo.results.table import Column
from dpdemo.wording import counted

_MOST_NAMED, _MOST_BATCHES, _WIDTH, _MOST_RANKS = 12, 3, 36, 8
_MOST_VISITS = 20
_TIMES = {1: "once", 2: "twice", 3: "three times", 4: "four times", 5: "five times", 6: "six times"}
UNLOADED, KEPT = "Rows that entered", "Rows that were kept and entered"
"""Kinds of rows that came from no loader, or not in this pass over it."""
_WHY = {
    UNLOADED: "No loader that dpdemo follows gave them: a row is known by its content, not by an index.",
    KEPT: "A loader had given them, and the program used them again: a row is known by its content.",
}


@dataclass(frozen=True)
class RankEpoch:
    """The samples that one rank drew in one epoch: an index for each, or a fingerprint of its content."""

    epoch: int
    drawn: int
    trained: int
    batches: tuple[tuple[int | str, ...], ...] = ()


@dataclass(frozen=True)
class RankSamples:
    """The samples that one rank drew from a loader, in all epochs, or that entered a module from none."""

    at: str
    epochs: int
    drawn: int
    length: int | None
    trained: int = 0
    by: Literal["index", "content"] = "index"
    kind: str = "DataLoader"
    noun: str = "sample"
    passes: tuple[RankEpoch, ...] = ()


@dataclass(frozen=True)
class Coverage:
    """The samples of a data set that all ranks together drew in the first epoch of a loader.

    `times` counts the samples by the number of their draws; `length` is None where nobody knows it.
    """

    at: str
    length: int | None
    drawn: int
    num_repeated: int
    num_left_out: int
    num_distinct: int = 0
    times: dict[int, int] = field(default_factory=dict)
    of: str = "Epoch 1"
    noun: str = "sample"
    repeated: tuple[int | str, ...] = ()
    left_out: tuple[int | str, ...] = ()
    """The first of those, if they are few."""
    are_own: bool = False
    """Whether each rank indexes a set of its own, so that samples are compared by content."""
    is_complete: bool = True
    """Whether all ranks came to the end of the epoch: else nothing is known of what they did not draw."""


@dataclass(frozen=True)
class Visit:
    """One draw of a sample: by which rank, in which epoch and batch (from 1), as which row of it (from 0)."""

    at: str
    rank: int
    epoch: int
    batch: int
    row: int


@dataclass(frozen=True)
class Trace:
    """All draws of one sample; `is_whole` unless some lists of samples were too long to keep."""

    sample: str
    visits: tuple[Visit, ...]
    is_whole: bool = True


def trace(of_ranks: Mapping[int, Sequence[RankSamples]], sample: str) -> Trace:
    """Follow one sample, named by its index or by its content, through the epochs of all ranks."""
    found, is_whole = [], True
    for rank, loaders in of_ranks.items():
        for each in loaders:
            for done in each.passes:
                is_whole &= bool(done.batches) or not done.drawn
                for number, batch in enumerate(done.batches, 1):
                    rows = [row for row, name in enumerate(batch) if str(name) == sample]
                    found += [Visit(each.at, rank, done.epoch, number, row) for row in rows]
    return Trace(sample, tuple(found), is_whole)


def trace_part(traced: Trace) -> Part:
    """List where a sample was drawn."""
    rows = [
        (str(visit.rank), str(visit.epoch or ""), str(visit.batch), str(visit.row), visit.at)
        for visit in traced.visits[:_MOST_VISITS]
    ]
    left = len(traced.visits) - len(rows)
    below = [f"and {left} more: --report FILE.json"] if left else []
    below += [] if rows else ["No rank drew it."]
    below += [] if traced.is_whole else ["Some epochs were too long to keep each sample of them."]
    head = ("rank", "epoch", "batch", "row", "from")
    columns: tuple[Column, ...] = ("right", "right", "right", "right", "fold")
    return Part(f"Sample {traced.sample}", columns, head, tuple(rows), tuple(below))


def samples_part(of_ranks: Mapping[int, RankSamples | None], coverage: Sequence[Coverage]) -> Part:
    """Describe the samples of one loader on all ranks."""
    found = [each for each in of_ranks.values() if each is not None]
    first = found[0]
    is_apart = any(each.trained != each.drawn for each in found) and any(each.trained for each in found)
    cells = {rank: _cells(each, is_apart=is_apart) for rank, each in of_ranks.items() if each is not None}
    shows = len(cells) <= _MOST_RANKS and any(each[-1] for each in cells.values())
    if not shows:
        cells = {rank: each[:-1] for rank, each in cells.items()}
    rows: dict[tuple[str, ...], list[int]] = {}
    for rank, each in cells.items():
        rows.setdefault(each, []).append(rank)
    verb = "trained on" if first.kind in _WHY else "drawn"
    head = ("ranks", f"{first.noun}s {verb} by each", *(["trained on"] * is_apart), "epochs")
    head = (*head, "first batches") if shows else head
    columns: tuple[Column, ...] = ("keep", "right", "right", "right", "fold")
    columns = columns[: len(head) - shows] + columns[-1:] * shows
    below = tuple(map(coverage_line, coverage))
    if any(each.are_own for each in coverage):
        below += ("Each rank's data set is its own: samples of two ranks are the same if their content is.",)
    if first.kind in _WHY:
        below += (_WHY[first.kind],)
    elif first.by == "content":
        below += ("Rows are known by their content: this loader has no indices.",)
    return Part(
        f"{first.kind} {'' if first.kind in _WHY else 'at '}{first.at}",
        columns,
        head,
        tuple((", ".join(spans(ranks)), *each) for each, ranks in rows.items()),
        below,
    )


def _cells(samples: RankSamples, *, is_apart: bool) -> tuple[str, ...]:
    counts = [samples.drawn, *([samples.trained] * is_apart)]
    epochs = str(samples.epochs) if samples.epochs else ""
    return *map(str, counts), epochs, _batches(samples)


def _batches(samples: RankSamples) -> str:
    """Write the first batches, if they are short: `0–3 | 8, 9`."""
    batches = samples.passes[0].batches if samples.passes else ()
    shown: list[str] = []
    for batch in batches[:_MOST_BATCHES]:
        text = names_text(batch)
        if len(" | ".join([*shown, text])) > _WIDTH:
            break
        shown.append(text)
    more = " | …" if shown and len(shown) < len(batches) else ""
    return " | ".join(shown) + more


def names_text(names: Sequence[int | str]) -> str:
    """Write samples in their order, neighbours as a span: `0–3, 8`."""
    runs: list[list[int | str]] = []
    for name in names:
        number = _number(name)
        last = _number(runs[-1][-1]) if runs else None
        if number is not None and last is not None and number == last + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(
        str(run[0]) if len(run) == 1 else f"{run[0]}{'–' if len(run) > 2 else ', '}{run[-1]}" for run in runs
    )


def _number(name: int | str) -> int | None:
    text = str(name)
    return int(text) if text.isdigit() else None


def coverage_line(epoch: Coverage) -> str:
    """Write how often samples were drawn: `Epoch 1, all ranks: 20 drawn from 19 samples: 1 twice, …`."""
    source = f"{epoch.num_distinct} distinct {epoch.noun}{'' if epoch.num_distinct == 1 else 's'}"
    if epoch.length is not None and epoch.is_complete:
        source = counted(epoch.length, epoch.noun)
    return f"{epoch.of}, all ranks: {epoch.drawn} drawn from {source}: {times_text(epoch)}"


def times_text(epoch: Coverage) -> str:
    """Write a histogram in words: `341 three times, 1 once, 682 never`."""
    parts = []
    for times, count in sorted(epoch.times.items(), reverse=True):
        word = often(times)
        if len(epoch.times) == 1 and (not epoch.num_left_out or not epoch.is_complete):
            parts.append(f"each {word}")
        else:
            parts.append(f"{count} {word}{_named(epoch.repeated if times > 1 else (), count)}")
    if not epoch.is_complete:
        return ", ".join([*parts, "left before its end"])
    never = f"{epoch.num_left_out} never{_named(epoch.left_out, epoch.num_left_out)}"
    end = "none left out" if epoch.length is not None else "length unknown"
    return ", ".join([*parts, never if epoch.num_left_out else end])


def often(times: int) -> str:
    """Write a number of times: `twice`, `9 times`."""
    return _TIMES.get(times, f"{times} times")


def _named(names: Sequence[int | str], count: int) -> str:
    return f" ({names_text(names)})" if 0 < len(names) == count <= _MOST_NAMED else ""

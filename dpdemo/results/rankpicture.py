"""The picture and the Markdown of `dpdemo exec --ranks`; ranks that did the same share a row."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from dpdemo.results.table import Column, Table, Uncut, styled
from dpdemo.sizes import size
from dpdemo.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from dpdemo.results.rankdata import Collective, Coverage, RankModel, RankResult, RanksData
    from dpdemo.results.table import Block, Canvas

Cells = TypeVar("Cells")
_MOST_PARTS, _MOST_SHAPES = 8, 4
"""Modules and loaders, and shapes of one, that are drawn; the JSON form has them all."""


@dataclass(frozen=True)
class Part:
    """One part of the report: a heading, a table, and what follows from it."""

    heading: str
    columns: tuple[Column, ...]
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    below: str = ""


def draw(report: RanksData, canvas: Canvas) -> Iterator[Block]:
    """Yield the picture, block by block."""
    for number, line in enumerate(report.problem):
        yield Uncut(canvas.text(line, style="" if number else "bold red"))
    if report.problem:
        yield ()
    yield canvas.text(title(report), style="bold")
    if not any(rank.collectives for rank in report.ranks):
        yield canvas.text("No rank made a collective, so the ranks trained or computed apart.")
    for part in _parts(report):
        yield ()
        yield Uncut(canvas.text(part.heading, style="bold"))
        table = Table(
            part.columns, head=tuple(canvas.text(*word.split("\n"), style="dim") for word in part.head)
        )
        for row in part.rows:
            table.add(*(canvas.text(*cell.split("\n")) for cell in row))
        yield table
        if part.below:
            yield canvas.text(part.below)
    if _num_unlisted(report):
        yield ()
        yield canvas.text(_unlisted(report))
    if report.mistakes:
        yield ()
    for mistake in report.mistakes:
        yield styled("Mistake: ", "bold yellow") + canvas.text(f"{mistake.text} ({mistake.at})")
        yield canvas.text(f"  {mistake.advice}")


def title(report: RanksData) -> str:
    """Head the report: `Ran on 4 ranks: train.py`."""
    failed = [rank.rank for rank in report.ranks if rank.exit_code]
    ended = f"; {_ranks(failed)} failed" if failed and not report.problem else ""
    return f"Ran on {counted(len(report.ranks), 'rank')}: {report.program}{ended}"


def _num_unlisted(report: RanksData) -> int:
    return max(0, len([*_models(report), *_loaders(report)]) - _MOST_PARTS)


def _unlisted(report: RanksData) -> str:
    return f"{_num_unlisted(report)} modules or loaders are not listed: --report FILE.json"


def _parts(report: RanksData) -> Iterator[Part]:
    yield from [*_models(report), *_loaders(report)][:_MOST_PARTS]
    collectives = _folded(report.ranks, lambda rank: tuple(map(_collective, rank.collectives)))
    rows = [
        (_ranks(ranks) if not number else "", *cells)
        for ranks, found in collectives
        for number, cells in enumerate(found)
    ]
    if rows:
        head = ("ranks", "collective of each", "calls", "bytes")
        yield Part("Collectives", ("keep", "fold", "right", "right"), head, tuple(rows))
    peaks = report.peaks()
    if peaks:
        held = tuple((_devices(peak, peaks), size(peak)) for peak in dict.fromkeys(peaks.values()))
        yield Part("Peak memory", ("fold", "right"), ("GPU", "bytes"), held)


def _collective(one: Collective) -> tuple[str, str, str]:
    return one.name, str(one.count), size(one.num_bytes) if one.num_bytes else ""


def _models(report: RanksData) -> Iterator[Part]:
    keys = dict.fromkeys(_key(model) for rank in report.ranks for model in rank.models)
    for key in keys:
        wrapper, name, at = key
        of_ranks = {
            rank.rank: [model for model in rank.models if _key(model) == key] for rank in report.ranks
        }

        def cells(rank: RankResult, of_ranks: dict[int, list[RankModel]] = of_ranks) -> tuple[str, ...]:
            return _model(of_ranks[rank.rank])

        most = max(map(len, of_ranks.values()))
        yield Part(
            f"{wrapper}({name}) at {at}{f', made {most} times' if most > 1 else ''}",
            ("keep", "right", "right", "right", "fold"),
            ("ranks", "calls", "averaged\nbackwards", "steps", "In Model: input → output"),
            tuple((_ranks(ranks), *found) for ranks, found in _folded(report.ranks, cells) if found),
        )


def _key(model: RankModel) -> tuple[str, str, str]:
    return model.wrapper, model.name, model.at


def _model(models: Sequence[RankModel]) -> tuple[str, ...]:
    if not models:
        return ()
    shapes: dict[str, int] = {}
    for model in models:
        for shape, count in model.shapes.items():
            shapes[shape] = shapes.get(shape, 0) + count
    listed = [f"{count} × {shape}" if len(shapes) > 1 else shape for shape, count in shapes.items()]
    more = [f"and {len(listed) - _MOST_SHAPES} others"] if len(listed) > _MOST_SHAPES else []
    sums = (sum(getattr(model, key) for model in models) for key in ("forwards", "backwards", "steps"))
    return *map(str, sums), "\n".join(listed[:_MOST_SHAPES] + more)


def _loaders(report: RanksData) -> Iterator[Part]:
    covered = {one.at: one for one in report.coverage}
    for at in dict.fromkeys(one.at for rank in report.ranks for one in rank.samples):

        def cells(rank: RankResult, at: str = at) -> tuple[str, ...]:
            return next(((str(one.drawn), str(one.epochs)) for one in rank.samples if one.at == at), ())

        found = _folded(report.ranks, cells)
        yield Part(
            f"DataLoader at {at}",
            ("keep", "right", "right"),
            ("ranks", "samples drawn by each", "epochs"),
            tuple((_ranks(ranks), *found) for ranks, found in found if found),
            _coverage(covered[at]) if at in covered else "",
        )


def _coverage(one: Coverage) -> str:
    twice = f"{counted(one.num_repeated, 'sample')} twice" if one.num_repeated else "none twice"
    left = f"{one.num_left_out} left out" if one.num_left_out else "none left out"
    return f"Epoch 1, all ranks: {one.drawn} drawn from {one.length} samples, {twice}, {left}"


def _folded(
    ranks: Iterable[RankResult], cells: Callable[[RankResult], tuple[Cells, ...]]
) -> list[tuple[list[int], tuple[Cells, ...]]]:
    """Group the ranks that have the same cells."""
    groups: dict[tuple[Cells, ...], list[int]] = {}
    for rank in ranks:
        groups.setdefault(cells(rank), []).append(rank.rank)
    return [(numbers, found) for found, numbers in groups.items()]


def _ranks(numbers: Sequence[int]) -> str:
    """Name ranks: `0–3`, or `0, 2`."""
    is_stretch = len(numbers) > 2 and all(later == one + 1 for one, later in pairwise(numbers))
    return f"{numbers[0]}–{numbers[-1]}" if is_stretch else ", ".join(map(str, numbers))


def _devices(held: int, peaks: dict[str, int]) -> str:
    names = [device for device, peak in peaks.items() if peak == held]
    return f"{_ranks_of(names)} each" if len(names) > 1 else names[0]


def _ranks_of(names: Sequence[str]) -> str:
    kind = names[0].partition(":")[0]
    return f"{kind}:{_ranks([int(name.partition(':')[2]) for name in names])}"

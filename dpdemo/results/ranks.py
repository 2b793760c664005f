"""What the ranks of a program did: the collectives and peaks of each, ranks that did the same together."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dpdemo.results.rankmistakes import Mistake
from dpdemo.sizes import size
from dpdemo.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = "dpdemo.ranks/1"
_MANY = 4
"""Of more models, loaders or shapes the first are listed; JSON has all."""


@dataclass(frozen=True)
class Collective:
    """The calls of one collective by one rank; `num_bytes` is the sum over its tensors."""

    name: str
    count: int
    num_bytes: int


@dataclass(frozen=True)
class RankModel:
    """A module that is trained by several ranks, on one; `shapes` counts forward calls by their shapes."""

    name: str
    at: str
    forwards: int
    backwards: int
    steps: int
    shapes: dict[str, int]
    wrapper: str = "DistributedDataParallel"


@dataclass(frozen=True)
class RankSamples:
    """What one rank drew from a DataLoader, in all epochs."""

    at: str
    epochs: int
    drawn: int
    length: int | None


@dataclass(frozen=True)
class RankResult:
    """One rank: its exit code, its collectives, and what it held on each GPU at its peak."""

    rank: int
    exit_code: int
    collectives: tuple[Collective, ...]
    peak_bytes: dict[str, int]
    models: tuple[RankModel, ...] = ()
    samples: tuple[RankSamples, ...] = ()


@dataclass(frozen=True)
class RanksResult:
    """What a program did as ranks of torch.distributed."""

    program: str
    arguments: tuple[str, ...]
    ranks: tuple[RankResult, ...]
    problem: tuple[str, ...] = ()
    mistakes: tuple[Mistake, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"schema": SCHEMA, **asdict(self)}

    def lines(self) -> Iterator[str]:
        """Yield the report, line by line."""
        num = len(self.ranks)
        yield f"Ran on {num} rank{'s' * (num != 1)}: {self.program}"
        if not any(rank.collectives for rank in self.ranks):
            yield "No rank made a collective: the program never used torch.distributed."
        for ranks in self._alike():
            yield from _lines_of(self.ranks[ranks[0]], ranks)
        peaks: dict[str, int] = {}
        for rank in self.ranks:  # two ranks on one GPU add up
            for device, held in rank.peak_bytes.items():
                peaks[device] = peaks.get(device, 0) + held
        if peaks:
            yield "Peak: " + ", ".join(f"{device} {size(held)}" for device, held in sorted(peaks.items()))

        yield from (f"Mistake: {mistake}" for mistake in self.mistakes)

    def _alike(self) -> list[list[int]]:
        groups: dict[str, list[int]] = {}
        for rank in self.ranks:
            groups.setdefault(str(list(_lines_of(rank, [0]))), []).append(rank.rank)
        return list(groups.values())


def _lines_of(rank: RankResult, ranks: list[int]) -> Iterator[str]:
    """Yield the lines of ranks that did the same."""
    made = [f"{one.name} {one.count} ({size(one.num_bytes)})" for one in rank.collectives]
    where = f"Rank {ranks[0]}" if len(ranks) == 1 else f"Ranks {', '.join(map(str, ranks))} each"
    yield f"{where}: {', '.join(made) or 'no collective'}"
    yield from _bounded([_of_model(model) for model in rank.models])
    yield from _bounded([_of_samples(one) for one in rank.samples])


def _of_model(model: RankModel) -> str:
    shapes = [f"{count} × {shape}" for shape, count in model.shapes.items()]
    more = [f"{len(shapes) - _MANY} other shapes"] if len(shapes) > _MANY else []
    calls = f"\n    {', '.join(shapes[:_MANY] + more)}" if shapes else ""
    return (
        f"  {model.wrapper}({model.name}): {counted(model.forwards, 'call')}, "
        f"{counted(model.backwards, 'averaged backward pass')}, {counted(model.steps, 'step')}{calls}"
    )


def _of_samples(one: RankSamples) -> str:
    whole = "" if one.length is None else f" of {one.length}"
    return f"  DataLoader at {one.at}: {one.drawn}{whole} samples drawn in {counted(one.epochs, 'epoch')}"


def _bounded(parts: list[str]) -> Iterator[str]:
    """Yield the lines of the first parts, equal ones once; a program may make a model at each step."""
    kinds = Counter(parts)
    for part, count in list(kinds.items())[:_MANY]:
        first, *rest = part.splitlines()
        yield f"{first} (× {count})" if count > 1 else first
        yield from rest
    if len(kinds) > _MANY:
        yield f"  and {len(kinds) - _MANY} others: --report FILE.json has all"

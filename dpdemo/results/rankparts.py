"""A part of the report of ranks: a heading, a table in which equal ranks share a row, and lines below it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dpdemo.results.devices import alike, spans
from dpdemo.results.table import Block, Column, Table, Uncut, stacked, styled

Cells = TypeVar("Cells")


class _OfRank(Protocol):
    @property
    def rank(self) -> int: ...


Ranked = TypeVar("Ranked", bound=_OfRank)


@dataclass(frozen=True)
class Part:
    """A part of the report: a heading, a table, and what follows from it."""

    heading: str
    columns: tuple[Column, ...]
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    below: tuple[str, ...] = ()

    def blocks(self) -> Iterator[Block]:
        """Yield its lines; a terminal can open the `file:line` of its heading."""
        yield Uncut(styled(self.heading, "bold"))
        table = Table(self.columns, head=self.head)
        for row in self.rows:
            table.add(*(stacked(cell.split("\n")) for cell in row))
        yield table
        for line in self.below:
            yield styled(line)


def folded(
    ranks: Iterable[Ranked], cells: Callable[[Ranked], tuple[Cells, ...]]
) -> list[tuple[list[int], tuple[Cells, ...]]]:
    """Group the ranks that have the same cells."""
    return [([rank.rank for rank in same], found) for found, same in alike(ranks, cells).items()]


def ranks_label(numbers: Sequence[int]) -> str:
    """Write the numbers of ranks: `0–3, 5`."""
    return ", ".join(spans(numbers))

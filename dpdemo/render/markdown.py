"""Markdown: foreign text made harmless, and tables padded so that the source reads well too."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from dpdemo.wording import printable

_SIGNS = re.compile(r"([\\`*_<|\[\]])")


def escaped(text: str) -> str:
    """Write text so that Markdown shows it as it is, on one line."""
    return _SIGNS.sub(r"\\\1", printable(text))


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[int] = (),
    widths: Sequence[int] | None = None,
) -> Iterator[str]:
    """Yield a table line by line.

    Args:
        head: the names of the columns.
        rows: the cells of each row, already escaped.
        right: the columns that are set to the right.
        widths: of the columns, where they are known; else all rows are read before the first line.

    """
    if widths is None:
        rows = list(rows)
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    widths = [
        max(2, width) if index in right else width for index, width in enumerate(widths)
    ]  # `:` alone is no rule
    rule = [f"{'-' * (width - 1)}:" if index in right else "-" * width for index, width in enumerate(widths)]
    for cells in (head, rule):
        yield _line(cells, widths, right)
    for row in rows:
        yield _line(row, widths, right)


def _line(cells: Sequence[str], widths: Sequence[int], right: Collection[int]) -> str:
    padded = [
        cell.rjust(width) if index in right else cell.ljust(width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"| {' | '.join(padded)} |\n"

"""Rows as CSV."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dpdemo.reports.base import Cell
from dpdemo.wording import printable


class _Echo:
    """A file for csv.writer whose `write` hands the line back, so that lines can be yielded."""

    def write(self, line: str) -> str:
        return line


def csv_pieces(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    """Yield the header, then a line for each row."""
    writer: Any = csv.writer(_Echo(), lineterminator="\n")
    yield writer.writerow(columns)
    for row in rows:
        yield writer.writerow([_cell(value) for value in row])


def _cell(value: Cell) -> Cell:
    """Write what is unknown as nothing, and a text so that no spreadsheet takes it for a formula."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        guard = "'" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else ""
        return guard + printable(value)
    return value

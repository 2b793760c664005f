"""JSON and CSV, written piece by piece, so that an epoch of any length can be piped."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import chain, islice
from typing import Any

from dpdemo.wording import printable

Cell = str | int | float | None
"""A value in a column of a row: flat, as a CSV has it."""
Row = tuple[Cell, ...]
WIDTH = 130
"""Longest line of JSON; single values and lists of them are never broken."""
_SINGLE = (str, int, float, type(None))


def json_pieces(plain: dict[str, object]) -> Iterator[str]:
    """Yield the text of plain data; lists in it may be iterators, which are read as they are written."""
    yield from _written(plain, "\n")
    yield "\n"


def in_json(
    name: str | None = None, form: Callable[[Any], Any] | None = None, *, null: bool = True
) -> dict[str, Any]:
    """Make the metadata of a dataclass's field that JSON holds otherwise than it is.

    Args:
        name: its key; "" leaves it out.
        form: makes its plain data.
        null: whether JSON has it where it is None.

    """
    return {"name": name, "form": form or _plain, "null": null}


def plain_fields(result: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, and the properties that its `DERIVED` names, as plain data."""
    found = {}
    for attribute, name, form, null in _forms(result.__class__):
        value = getattr(result, attribute)
        if null or value is not None:
            found[name] = form(value)
    return found


@cache
def _forms(kind: Any) -> list[tuple[str, str, Callable[[Any], Any], bool]]:
    """List the attributes of a dataclass that JSON holds: name, key, form, and whether null is written."""
    found = []
    for each in fields(kind):
        how = each.metadata or in_json()
        name = each.name if how["name"] is None else how["name"]
        found += [(each.name, name, how["form"], how["null"])] if name else []
    return found + [(name, name, _plain, True) for name in getattr(kind, "DERIVED", ())]


def _plain(value: Any) -> Any:
    if isinstance(value, _SINGLE):
        return value
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return plain_fields(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def without_iterators(value: Any) -> Any:
    """Copy plain data with each iterator as a list."""
    if isinstance(value, dict):
        return {key: without_iterators(item) for key, item in value.items()}
    if isinstance(value, _SINGLE):
        return value
    return [without_iterators(item) for item in value]


@cache
def _encoder() -> Callable[[object], str]:
    import json

    return json.JSONEncoder(allow_nan=False).encode


def _written(value: Any, indent: str) -> Iterator[str]:
    """Write a value on a line if it fits: else an object with a line for each key, or a list.

    Objects in a list have a line each, single values are written side by side.
    """
    line = _on_one_line(value)
    if line is not None:
        yield line
        return
    if isinstance(value, dict):
        items = ((f"{_encoder()(key)}: ", item) for key, item in value.items())
        opening, closing, separator = "{", "}", f",{indent} "
    else:
        members = iter(value)
        first = list(islice(members, 1))
        items = (("", item) for item in chain(first, members))
        is_flat = bool(first) and isinstance(first[0], _SINGLE)
        opening, closing = f"[{indent} " if first and not is_flat else "[", "]"
        separator = ", " if is_flat else f",{indent} "
    yield opening
    before = ""
    for key, item in items:
        yield before + key
        yield from _written(item, f"{indent} ")
        before = separator
    yield closing


def _on_one_line(value: Any) -> str | None:
    """Write a value that fits on one line; None for others and for iterators."""
    try:
        line = _encoder()(value)
    except TypeError:
        return None
    if len(line) <= WIDTH or isinstance(value, _SINGLE):
        return line
    items = value.values() if isinstance(value, dict) else value
    return line if all(isinstance(item, _SINGLE) for item in items) else None


class _Echo:
    """A file for csv.writer whose `write` hands the line back, so that lines can be yielded."""

    def write(self, line: str) -> str:
        return line


def csv_pieces(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    """Yield the header, then a line for each row."""
    import csv

    writer: Any = csv.writer(_Echo(), lineterminator="\n")
    yield writer.writerow(columns)
    for row in rows:
        yield writer.writerow([_csv_cell(value) for value in row])


def _csv_cell(value: Cell) -> Cell:
    """Write an unknown value as nothing, and a text so that no spreadsheet takes it for a formula."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        guard = "'" if value.startswith(("=", "+", "-", "@", "\t", "\r")) else ""
        return guard + printable(value)
    return value

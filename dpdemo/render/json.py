"""Plain data as JSON text, written an entry at a time: a hundred thousand replicas are never held at once."""

import json
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

WIDTH = 130
"""What is no longer than this stands on one line, and so does whatever holds single values alone."""


_SINGLE = (str, int, float, type(None))


def pieces(plain: dict[str, object]) -> Iterator[str]:
    """Yield the text of plain data; lists in it may be iterators, which are read as they are written."""
    yield from _members("", [("", plain)], "\n")
    yield "\n"


def _members(separator: str, members: Iterable[tuple[str, object]], indent: str) -> Iterator[str]:
    """Write values, each behind its key, which may be nothing."""
    before = ""
    for key, value in members:
        line = _on_one_line(value)
        if line is not None:
            yield before + key + line
        else:
            yield before + key
            yield from _on_lines(value, indent)
        before = separator


def _on_lines(value: Any, indent: str) -> Iterator[str]:
    """Write an object, a line for each key, or a list: objects a line each, single values side by side."""
    if isinstance(value, dict):
        keys = ((f"{_encode(key)}: ", item) for key, item in value.items())
        opening, closing, separator = "{", "}", f",{indent} "
    else:
        items = iter(value)
        first = list(islice(items, 1))
        keys = (("", item) for item in chain(first, items))
        is_flat = bool(first) and isinstance(first[0], _SINGLE)
        opening, closing = f"[{indent} " if first and not is_flat else "[", "]"
        separator = ", " if is_flat else f",{indent} "
    yield opening
    yield from _members(separator, keys, f"{indent} ")
    yield closing


_encode = json.JSONEncoder(allow_nan=False).encode


def _on_one_line(value: Any) -> str | None:
    """Write what stands on one line; None for what does not, or holds an iterator."""
    try:
        line = _encode(value)
    except TypeError:
        return None
    if len(line) <= WIDTH or isinstance(value, _SINGLE):
        return line
    items = value.values() if isinstance(value, dict) else value
    return line if all(isinstance(item, _SINGLE) for item in items) else None

"""Reading `--lengths`, the tokens of each sample: from a text, CSV or JSON lines file, or from stdin."""

import csv
import json
import operator
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, SupportsIndex

from dpdemo.config.fields import INT64_MAX
from dpdemo.errors import UsageError
from dpdemo.files import MOST_BYTES, read_bytes
from dpdemo.wording import printable, show

STDIN = "-"


@dataclass(frozen=True)
class Lengths:
    """The tokens of each sample; `source` names the file, and `lines` has the line of each."""

    values: list[int]
    source: str = ""
    lines: Sequence[int] = ()

    def first(self, data_size: int) -> "Lengths":
        """Take the lengths of the first samples, as many as the epoch has.

        Raises:
            UsageError: if there are fewer.

        """
        if len(self.values) < data_size:
            last = f":{self.lines[-1]}" if self.values and self.lines else ""
            raise UsageError(
                f"expected a length for each of the {data_size} samples, got {len(self.values)}",
                key="" if self.source else "lengths",
                place=f"{self.source}{last}",
                hint="leave {data_size=} out: without it the epoch is as long as the lengths",
            )
        return Lengths(self.values[:data_size], self.source, self.lines)

    def expect_at_most(self, limit: int, key: str) -> None:
        """Check that no sample is longer than the limit that the argument `key` sets.

        Raises:
            UsageError: if one is.

        """
        if self.values and max(self.values) > limit:
            index = next(index for index, length in enumerate(self.values) if length > limit)
            where = f"{self.source}:{self.lines[index]}" if self.source else f"item {index + 1}"
            raise UsageError(
                f"expected at most {limit} tokens, got {self.values[index]} in {where}",
                key=key,
                hint=f"the longest sample has {max(self.values)}",
            )


def check_lengths(values: Sequence[SupportsIndex] | Any) -> Lengths:
    """Check lengths given in Python: whole numbers of 0 or more, NumPy's and a tensor's included.

    Raises:
        UsageError: naming the first that is not.

    """
    found: list[int] = []
    try:
        items = iter(values)
    except TypeError:
        raise UsageError(f"expected a list of whole numbers, got {show(values)}", key="lengths") from None
    for index, value in enumerate(items):
        try:
            number = -1 if isinstance(value, bool) else operator.index(value)
        except TypeError:
            number = -1
        if not 0 <= number <= INT64_MAX:
            raise UsageError(
                f"expected a whole number of 0 or more, got {show(value)} as item {index + 1}", key="lengths"
            )
        found.append(number)
    if not found:
        raise UsageError("expected a length for each sample, got none", key="lengths")
    return Lengths(found)


def get_lengths(lengths: Any) -> Lengths:
    """Read lengths from a file where one is named, or else check them.

    Raises:
        UsageError: if they are not valid.

    """
    is_file = isinstance(lengths, str | os.PathLike)
    return read_lengths(os.fspath(lengths)) if is_file else check_lengths(lengths)


def read_lengths(text: str) -> Lengths:
    """Read `FILE`, `FILE:COLUMN`, `-` or `-:COLUMN`.

    Without a column each line is a whole number. With one the file is JSON lines if its first line begins
    with a brace, else CSV (tabs instead of commas in a .tsv) whose first line names the columns. In JSON
    lines a list, such as input_ids, counts its items.

    Raises:
        UsageError: naming the file and the line.

    """
    path, column = _taken_apart(text)
    source = "stdin" if path == STDIN else printable(path)
    content = _content(path, source).rstrip()
    if not content:
        raise UsageError("expected a length for each sample, got an empty file", place=source)
    if column is None:
        return _lengths(enumerate(content.split("\n"), 1), source)
    if content.lstrip().startswith("{"):
        values = list(_json(content.split("\n"), column, source))
        return Lengths(values, source, range(1, len(values) + 1))
    cells = _csv(content, column, source, "\t" if path.endswith(".tsv") else ",")
    found = _lengths(cells, source, f", column `{printable(column)}`")
    if not found.values:
        raise UsageError("expected a length for each sample, got the head of a table alone", place=source)
    return found


def _taken_apart(text: str) -> tuple[str, str | None]:
    path, colon, column = text.rpartition(":")
    if not colon or not path or Path(text).exists():
        return text, None
    if not column:
        raise UsageError(f"expected a column after the colon, got {show(text)}", key="lengths")
    return path, column


def _content(path: str, source: str) -> str:
    try:
        # a program that writes into our pipe may take its time: only this waits without a limit
        data = sys.stdin.buffer.read(MOST_BYTES + 1) if path == STDIN else read_bytes(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"expected a file with lengths, got {source!r}: {why}", key="lengths") from None
    if len(data) > MOST_BYTES:
        raise UsageError(
            f"expected at most {MOST_BYTES >> 20} MiB, got more",
            place=source,
            hint="an endless stream has no last length: cut it with head -n",
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            "expected text, got bytes that are not UTF-8",
            place=f"{source}:{line}",
            hint="a file of lengths has one whole number a line",
        ) from None


def _lengths(cells: Iterable[tuple[int, str]], source: str, column: str = "") -> Lengths:
    """Read a whole number from each cell; each comes with the number of its line."""
    values: list[int] = []
    lines: list[int] = []
    for line, cell in cells:
        is_plain = cell.isascii() and cell.isdigit() and len(cell) < 19
        values.append(
            int(cell) if is_plain else _one_number(cell, f"{source}:{line}{column}", is_alone=not column)
        )
        lines.append(line)
    return Lengths(values, source, lines)


def _one_number(text: str, place: str, *, is_alone: bool) -> int:
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= INT64_MAX:
        return int(text)
    got = show(text) if text else "nothing"
    hint = ""
    if is_alone and (text.startswith("{") or "," in text):
        hint = "name the column: --lengths FILE:COLUMN"
    elif is_alone and text.isidentifier() and place.endswith(":1"):
        hint = f"name the column: --lengths FILE:{text}"
    raise UsageError(f"expected a whole number of 0 or more, got {got}", place=place, hint=hint)


def _json(lines: list[str], column: str, source: str) -> Iterator[int]:
    for number, row in enumerate(_objects(lines, source), 1):
        value = row.get(column)
        if type(value) is list:
            value = len(value)
        if type(value) is not int or not 0 <= value <= INT64_MAX:
            if column not in row:
                raise _no_column(column, list(map(str, row)), f"{source}:{number}")
            raise UsageError(
                f"expected a whole number of 0 or more, got {show(value)}",
                place=f"{source}:{number}, column `{printable(column)}`",
            )
        yield value


_AT_ONCE = 500  # fewer than the objects that make Python look for cycles


def _objects(lines: list[str], source: str) -> Iterator[dict[str, Any]]:
    """Yield the object of each line; many lines are parsed as a list, which is faster."""
    for start in range(0, len(lines), _AT_ONCE):
        part = lines[start : start + _AT_ONCE]
        try:
            rows = json.loads(f"[{','.join(part)}]")
        except (ValueError, RecursionError):
            rows = []
        if len(rows) != len(part) or set(map(type, rows)) != {dict}:
            rows = (
                _object(line.strip(), f"{source}:{number}") for number, line in enumerate(part, start + 1)
            )
        yield from rows


def _object(text: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise UsageError(f"expected a JSON object, got {show(text) if text else 'nothing'}", place=place)
    return row


def _csv(content: str, column: str, source: str, delimiter: str) -> Iterator[tuple[int, str]]:
    """Yield the cell of a column in each row of a table, with the number of its line."""
    reader = csv.reader(StringIO(content, newline=""), delimiter=delimiter)
    try:
        head = next(reader)
        if column not in head:
            raise _no_column(column, head, f"{source}:1")
        index = head.index(column)
        for row in reader:
            yield reader.line_num, row[index] if index < len(row) else ""
    except csv.Error as error:
        raise UsageError(f"expected CSV, got {error}", place=f"{source}:{reader.line_num}") from None


def _no_column(column: str, known: list[str], place: str) -> UsageError:
    named = ", ".join(printable(name) for name in known[:8]) + (", ..." if len(known) > 8 else "")
    return UsageError(
        f"expected the column `{printable(column)}`, got {named or 'none'}",
        place=place,
        hint=f"choose one of them: {{lengths=FILE:{printable(known[0])}}}" if known else "",
    )

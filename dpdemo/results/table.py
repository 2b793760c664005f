"""Text in a width: lines of (text, style) pieces, and tables of them; styles are Rich's, such as `bold red`.

A result yields blocks: a line, a `Table`, or an `Uncut` line. `lay_out` turns them into lines that fit. A
pipe gets their plain text, and Rich colours the same lines on a terminal, in SVG and in HTML.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, NamedTuple

from dpdemo.wording import fit, printable

GAP = 2
"""Blanks between columns."""
SHORTEST_BAR, LONGEST_BAR = 5, 60

Line = tuple[tuple[str, str], ...]
"""Pieces of text, each with its style ("" for none); lines are joined by `+`."""
Column = int | Literal["keep", "fold", "right"]
"""A width; or `keep` on one line, `fold` where there is no room, or set to the `right`."""


class Uncut(tuple[tuple[str, str], ...]):
    """A line that runs on past the width, so that a terminal can open its `file:line`; a picture folds it."""

    __slots__ = ()


@dataclass(frozen=True)
class Table:
    """Cells in columns; `has_rule` draws a rule below the head, `rules` are rows with a rule above them.

    A name in the head may have several lines. The table alone measures its columns: in the characters that a
    canvas shows.
    """

    columns: Sequence[Column]
    rows: list[tuple[Line, ...]] = field(default_factory=list)
    head: Sequence[str] = ()
    has_rule: bool = False
    rules: frozenset[int] = frozenset()
    gap: int = GAP

    def add(self, *cells: Line | str) -> None:
        """Add a row."""
        self.rows.append(tuple(styled(cell) if isinstance(cell, str) else cell for cell in cells))

    @property
    def heads(self) -> list[Line]:
        """The names above the columns as lines."""
        return [stacked(name.split("\n"), "dim") for name in self.head]

    def widths(self, canvas: "Canvas") -> list[int]:
        """Return the width of each column, had it all the room that it wants."""
        rows = [self.heads, *self.rows] if self.head else self.rows
        return [
            column
            if isinstance(column, int)
            else max((natural_width(canvas.fitted(row[at])) for row in rows if at < len(row)), default=0)
            for at, column in enumerate(self.columns)
        ]

    def bar_width(self, canvas: "Canvas") -> int:
        """Return the width of a bar beside the columns; 0 if none fits."""
        return canvas.bar_width(canvas.width - sum(self.widths(canvas)) - self.gap * len(self.columns))

    def with_bars(self, at: int, bars: Iterable[Line], width: int, head: str = "") -> "Table":
        """Return the table with a column of bars before column `at`; without one where the width is 0."""
        if not width:
            return self
        rows = [(*row[:at], bar, *row[at:]) for row, bar in zip(self.rows, bars, strict=True)]
        heads = (*self.head[:at], head, *self.head[at:]) if self.head else ()
        return replace(self, columns=[*self.columns[:at], width, *self.columns[at:]], rows=rows, head=heads)

    def bands(self, canvas: "Canvas") -> Iterator["Table"]:
        """Yield the table in parts with as many columns as fit, each behind the first."""
        first, *widths = self.widths(canvas)
        room = canvas.width - first

        def fits(columns: slice) -> bool:
            return sum(widths[columns]) + self.gap * len(widths[columns]) <= room

        start = 0
        for stop in range(1, len(widths)):
            if not fits(slice(start, stop + 1)):
                yield self._part(first, slice(start + 1, stop + 1))
                start = stop
        yield self._part(first, slice(start + 1, None))

    def _part(self, first: int, places: slice) -> "Table":
        rows = [(row[0], *row[places]) for row in self.rows]
        head = (self.head[0], *self.head[places]) if self.head else ()
        return replace(self, columns=(first, *self.columns[places]), rows=rows, head=head)


Block = Line | Table


class Canvas(NamedTuple):
    """The width of a picture in columns, whether it has bars (Markdown has none), and its encoding."""

    width: int
    draws_bars: bool = True
    encoding: str = "utf-8"

    def bar_width(self, room: int) -> int:
        """Return the width of a bar in this room; 0 where it is too narrow, and in Markdown."""
        return min(room, LONGEST_BAR) if self.draws_bars and room >= SHORTEST_BAR else 0

    def fitted(self, line: Line) -> Line:
        r"""Return a line in characters of the encoding; `\xe9` is wider than the letter it stands for."""
        return tuple((fit(text, self.encoding), style) for text, style in line)


def right(number: int) -> list[Column]:
    """Return so many columns that are set to the right."""
    return ["right" for _ in range(number)]


Fact = tuple[str, str, str]
"""A name, a number, and what the number means, which may begin with a colon; either may be empty."""
_REMARKS = {"Rule": "bold", "Note": "bold", "Warning": "bold yellow", "Tip": "bold green"}


def facts(found: Iterable[Fact], remarks: Iterable[tuple[str, str]] = ()) -> Table:
    """Make the table of a summary: facts, then notes, warnings and a tip, each behind its name."""
    table = Table(("keep", "fold"))
    for name, number, meaning in found:
        joint = " " if number and not meaning.startswith(":") else ""
        table.add(name, styled(number, "bold") + styled(joint + meaning))
    for kind, text in remarks:
        table.add(styled(kind, _REMARKS[kind]), text)
    return table


def styled(text: str, style: str = "") -> Line:
    """Make a line of one piece; nothing in a user's names steers the terminal."""
    return ((printable(text), style),)


def stacked(texts: Iterable[str], style: str = "") -> Line:
    """Make a line of several texts below each other."""
    return (("\n".join(map(printable, texts)), style),)


def plain(line: Line) -> str:
    """Return a line without its styles."""
    return "".join(text for text, _ in line)


def text_width(text: str) -> int:
    """Count the columns that a terminal gives a text."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in {"W", "F"} for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)


def lay_out(blocks: Iterable[Block], canvas: Canvas) -> Iterator[Line]:
    """Yield the lines of a picture, none with blanks at its end."""
    for block in blocks:
        if isinstance(block, Uncut):
            yield Uncut(canvas.fitted(block))
        elif isinstance(block, Table):
            yield from map(_stripped, _table_lines(block, canvas))
        else:
            yield from map(_stripped, _hanging(canvas.fitted(block), canvas.width))


def _hanging(line: Line, width: int) -> list[Line]:
    """Break a line between words; what follows stands below its first word."""
    text = plain(line)
    indent = len(text) - len(text.lstrip(" "))
    if not text.strip() or "\n" in text or indent > width // 2:
        return wrap(line, width)
    first = (" " * indent, "")
    return [(first, *part) for part in wrap(_cut(line, indent, len(text)), width - indent)]


def wrap(line: Line, width: int) -> list[Line]:
    """Break a line between words, and a word that is longer than the width anywhere."""
    text = plain(line)
    found: list[Line] = []
    start = 0
    for paragraph in text.split("\n"):
        edges = [0, *_breaks(paragraph, max(width, 1)), len(paragraph)]
        pieces = pairwise(edges)
        found += [_cut(line, start + first, start + last) for first, last in pieces]
        start += len(paragraph) + 1
    return found


def _breaks(text: str, width: int) -> Iterator[int]:
    """Yield the places where a text is broken."""
    if text_width(text) <= width:
        return
    column = 0
    for match in re.finditer(r"\s*\S+\s*", text):
        start, word = match.start(), match[0]
        length = text_width(word.rstrip())
        if column + length <= width:
            column += text_width(word)
            continue
        if column and start:
            yield start
        column = text_width(word)
        while length > width:
            part = next(
                size for size in range(len(word), 0, -1) if text_width(word[:size]) <= width or size == 1
            )
            start, word = start + part, word[part:]
            length, column = text_width(word.rstrip()), text_width(word)
            yield start


def _cut(line: Line, start: int, stop: int) -> Line:
    found, place = [], 0
    for text, style in line:
        piece = text[max(0, start - place) : max(0, stop - place)]
        if piece:
            found.append((piece, style))
        place += len(text)
    return tuple(found)


def _stripped(line: Line) -> Line:
    pieces = list(line)
    while pieces and not pieces[-1][0].strip():
        pieces.pop()
    if pieces:
        pieces[-1] = (pieces[-1][0].rstrip(), pieces[-1][1])
    return tuple(pieces)


def _table_lines(table: Table, canvas: Canvas) -> Iterator[Line]:
    widths = _widths(table, canvas)
    rule = canvas.fitted(styled("─" * (sum(widths) + table.gap * (len(widths) - 1)), "dim"))
    if table.head:
        heads = [wrap(canvas.fitted(cell), width) for cell, width in zip(table.heads, widths, strict=False)]
        highest = max(map(len, heads))
        bottom = (joined([*[()] * (highest - len(lines)), *lines]) for lines in heads)
        yield from _row_lines(table, widths, tuple(bottom))
        if table.has_rule:
            yield rule
    for number, row in enumerate(table.rows):
        if number in table.rules:
            yield rule
        yield from _row_lines(table, widths, tuple(map(canvas.fitted, row)))


def _widths(table: Table, canvas: Canvas) -> list[int]:
    found = table.widths(canvas)
    folded = [number for number, column in enumerate(table.columns) if column == "fold"]
    while folded and sum(found) + table.gap * (len(found) - 1) > canvas.width:
        widest = max(folded, key=lambda number: found[number])
        if found[widest] <= 1:
            break
        found[widest] -= 1
    return found


def natural_width(line: Line) -> int:
    """Count the columns of the widest part of a line."""
    return max(map(text_width, plain(line).split("\n")))


def _row_lines(table: Table, widths: Sequence[int], row: Sequence[Line]) -> Iterator[Line]:
    cells = [wrap(cell, width) for cell, width in zip(row, widths, strict=False)]
    for number in range(max(map(len, cells), default=1)):
        line: Line = ()
        for place, cell in enumerate(cells):
            part = cell[number] if number < len(cell) else ()
            blanks = styled(" " * (widths[place] - text_width(plain(part))))
            line += blanks + part if table.columns[place] == "right" else part + blanks
            line += styled(" " * table.gap)
        yield line


def joined(lines: Iterable[Line]) -> Line:
    """Join lines below each other into one."""
    found: Line = ()
    for number, line in enumerate(lines):
        found += ((("\n", ""),) if number else ()) + line
    return found

"""Changes of the user's code in several places: collected by position, and written out by line.

Each change holds whole lines as they stand and as they become, so that a person or a tool can put it in.
"""

import ast
import linecache
import re
import textwrap
from collections.abc import Iterator
from dataclasses import replace

from dpdemo.checking.source import Function, function_at, lines_of, span_of
from dpdemo.reports.check import Change, Place

_HEAD = re.compile(r"\s*(async |def |class |if |elif |else:|for |while |with |try:)")
"""The beginning of a line that a block may follow in."""


class Edits:
    """Texts that are put in the place of parts of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._parts: dict[tuple[int, int], str] = {}
        self._blocks: list[tuple[int, int]] = []

    def replace(self, node: ast.AST, text: str) -> None:
        """Write another text in the place of a part."""
        self._parts[span_of(self.file, node)] = text

    def in_front(self, node: ast.AST, text: str) -> None:
        """Put text in front of a part."""
        at, _ = span_of(self.file, node)
        self._insert(at, text)

    def around(self, node: ast.AST, before: str, after: str) -> None:
        """Put text in front of a part and behind it."""
        self.in_front(node, before)
        _, end = span_of(self.file, node)
        self._insert(end, after)

    def behind(self, statement: ast.stmt, code: str) -> None:
        """Put lines of code behind a statement, and what is written beside it."""
        lines, last = lines_of(self.file), statement.end_lineno or statement.lineno
        at = sum(map(len, lines[:last])) - lines[last - 1].endswith("\n")
        self._blocks.append((statement.lineno - 1, last - 1))  # its last line may stand deeper
        first = lines[statement.lineno - 1]
        indent = len(first) - len(first.lstrip())
        if _HEAD.match(first) and indent < statement.col_offset and "\n" not in code:
            self._insert(at, f"; {code.partition('   #')[0]}")  # all of its block is in that line
        else:
            self._insert(at, "\n" + " " * indent + _deeper(code, indent))

    def applied_to(self, node: ast.AST) -> str:
        """Return the source of a part with the changes in it."""
        first, last = span_of(self.file, node)
        source = "".join(lines_of(self.file))
        after, at = "", first
        for (start, end), text in sorted(self._parts.items()):
            if first <= start and end <= last:
                after += source[at:start] + text
                at = end
        return after + source[at:last]

    def first_in(self, function: Function, code: str) -> None:
        """Begin a function with lines of code."""
        body = function.node.body
        start = body[1 if ast.get_docstring(function.node) is not None and len(body) > 1 else 0]
        at, _ = span_of(self.file, start)
        if start.lineno == function.node.lineno:  # in the line of its `def`
            margin = " " * (function.node.col_offset + 4)
            self._insert(at, f"\n{textwrap.indent(code, margin)}\n{margin}")
        else:
            self._insert(at, _deeper(code, start.col_offset) + "\n" + " " * start.col_offset)

    def before(self, node: ast.FunctionDef | ast.AsyncFunctionDef, code: str) -> None:
        """Put lines of code, such as another method, before a function."""
        top = node.decorator_list[0] if node.decorator_list else node
        at, _ = span_of(self.file, top)
        at -= bool(node.decorator_list)  # its @
        margin = " " * node.col_offset
        self._insert(at, _deeper(code, node.col_offset) + "\n\n" + margin)

    def parameter(self, function: Function, code: str) -> None:
        """Give a function one more parameter, which has a default."""
        given = function.node.args
        known = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        defaults = [one for one in (*given.defaults, *given.kw_defaults) if one is not None]
        parts: list[ast.AST] = [*known, *([given.vararg] if given.vararg else []), *defaults]
        _, end = max((span_of(self.file, one) for one in parts), key=lambda span: span[1])
        self._insert(end, f", {code}")

    def _insert(self, at: int, text: str) -> None:
        self._parts[at, at] = self._parts.get((at, at), "") + text

    def changes(self) -> tuple[Change, ...]:
        """Write each line, or group of lines, that is touched: as it stands, and as it becomes."""
        return tuple(self._changes())

    def _changes(self) -> Iterator[Change]:
        lines = lines_of(self.file)
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line))
        parts = sorted(self._parts.items())
        touched = [(_row(starts, start), _row(starts, end)) for (start, end), _ in parts]
        for first, last in _joined([*touched, *self._blocks]):
            source = "".join(lines[first : last + 1])
            after, at = "", starts[first]
            for (start, end), text in parts:
                if first <= _row(starts, start) <= last:
                    after += source[at - starts[first] : start - starts[first]] + text
                    at = end
            after += source[at - starts[first] :]
            place = Place(self.file, first + 1, code=linecache.getline(self.file, first + 1).strip())
            around = function_at(place)
            place = replace(place, function=around.node.name if around else "")
            yield Change(place, *_to_the_margin(source, after))


def _joined(rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join groups of lines that overlap."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(rows):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _row(starts: list[int], at: int) -> int:
    return max(index for index, start in enumerate(starts) if start <= at)


def _deeper(code: str, columns: int) -> str:
    """Indent all lines but the first, which stands behind an indentation already."""
    return code.replace("\n", "\n" + " " * columns).replace("\n" + " " * columns + "\n", "\n\n")


def _to_the_margin(before: str, after: str) -> tuple[str, str]:
    """Take the indentation of the first line off all of them."""
    margin = len(before) - len(before.lstrip())
    lines = [_cut(line, margin) for line in after.splitlines()]
    return "\n".join(_cut(line, margin) for line in before.splitlines()), "\n".join(map(str.rstrip, lines))


def _cut(line: str, margin: int) -> str:
    return line[margin:] if not line[:margin].strip() else line.lstrip()

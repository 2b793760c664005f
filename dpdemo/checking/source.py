"""The user's code as it is written: its functions and statements, where they stand, and their text."""

import ast
import linecache
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from dpdemo.checking.repair import Repair
from dpdemo.models.frames import is_users
from dpdemo.reports.check import Place

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
"""What `ast` knows of functions, in a class or out of it."""


@dataclass(frozen=True)
class Function:
    """A function of the user's, as it is written."""

    file: str
    node: ast.FunctionDef | ast.AsyncFunctionDef

    def statements(self) -> Iterator[ast.stmt]:
        """List its statements in order: those in loops and branches too, not those of functions in it."""
        yield from _within(self.node.body)

    def arguments(self) -> set[str]:
        """List the names of its arguments."""
        given = self.node.args
        return {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)}

    def contexts(self) -> Iterator[ast.expr]:
        """List what it stands under as decorators, and what it opens in `with`."""
        yield from self.node.decorator_list
        for statement in self.statements():
            if isinstance(statement, (ast.With, ast.AsyncWith)):
                yield from (item.context_expr for item in statement.items)

    def text(self, node: ast.AST) -> str:
        """Return the source of a part of it."""
        start, end = span_of(self.file, node)
        return source_of(self.file)[start:end]

    def own(self, statement: ast.stmt, *parts: tuple[ast.AST, str]) -> Repair:
        """Write a statement with parts of it replaced."""
        source = source_of(self.file)
        first, last = span_of(self.file, statement)
        changed, at = "", first
        for (start, end), text in sorted((span_of(self.file, part), text) for part, text in parts):
            changed, at = changed + source[at:start] + text, end
        lines = [source[first:last], changed + source[at:last]]
        before, after = (to_the_left(one, statement.col_offset) for one in lines)
        code = linecache.getline(self.file, statement.lineno).strip()
        return Repair(Place(self.file, statement.lineno, self.node.name, code), before, after)

    def block(self, body: list[ast.stmt], around: ast.stmt) -> str:
        """Return the source of a block as it is written in the place of the statement around it."""
        (start, _), (_, end) = span_of(self.file, body[0]), span_of(self.file, body[-1])
        deeper = body[0].col_offset - around.col_offset
        is_below = body[0].lineno > around.lineno
        text = source_of(self.file)[start:end]
        return re.sub(rf"\n {{{deeper}}}", "\n", text) if is_below else text

    def rewritten(self, first: ast.stmt, last: ast.stmt, text: str) -> Repair:
        """Write statements that follow each other anew; with `def`, where they stand in its line."""
        (start, _), (_, end) = span_of(self.file, first), span_of(self.file, last)
        source, after = source_of(self.file), text
        is_beside = first.lineno == self.node.body[0].lineno == self.node.lineno
        outer: ast.stmt = self.node if is_beside else first
        if is_beside:
            start, _ = span_of(self.file, outer)
            head = source[start : span_of(self.file, first)[0]].rstrip()
            after = f"{head}\n{textwrap.indent(text, '    ')}"
        before = to_the_left(source[start:end], outer.col_offset)
        code = linecache.getline(self.file, first.lineno).strip()
        return Repair(Place(self.file, first.lineno, self.node.name, code), before, after)

    def whole(self, statement: ast.stmt, text: str) -> Repair:
        """Write another statement in the place of one."""
        return self.own(statement, (statement, text))


def _within(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for one in body:
        if isinstance(one, (*FUNCTIONS, ast.ClassDef)):
            continue
        yield one
        for name in ("body", "orelse", "finalbody"):
            yield from _within(getattr(one, name, []))
        for handler in getattr(one, "handlers", []):
            yield from _within(handler.body)


def to_the_left(text: str, columns: int) -> str:
    """Take as much indentation off all lines but the first, or what there is of it."""
    return re.sub(rf"\n {{0,{columns}}}", "\n", text)


@cache
def source_of(file: str) -> str:
    """Read a file as it is written."""
    return "".join(linecache.getlines(file))


@cache
def tree_of(file: str) -> ast.Module:
    """Read a file of Python; an empty module where there is none to read."""
    try:
        return ast.parse(source_of(file))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


@cache
def _line_starts(file: str) -> list[int]:
    starts, at = [], 0
    for line in linecache.getlines(file):
        starts.append(at)
        at += len(line)
    return starts


def lines_of(file: str) -> list[str]:
    """Return the lines of a file as they stand."""
    return linecache.getlines(file)


def span_of(file: str, node: ast.AST) -> tuple[int, int]:
    """Say where a part of a file begins and ends, in characters; ast counts bytes in a line."""
    ends = []
    for row, column in (
        (getattr(node, "lineno", 1), getattr(node, "col_offset", 0)),
        (getattr(node, "end_lineno", 1), getattr(node, "end_col_offset", 0)),
    ):
        line = linecache.getline(file, row).encode()[:column].decode(errors="ignore")
        ends.append(_line_starts(file)[row - 1] + len(line))
    return ends[0], ends[1]


def function_at(place: Place | None) -> Function | None:
    """Find the innermost function that a line stands in, by its decorators too; None where there is none."""
    if place is None or not is_users(place.file):
        return None
    around = [
        node
        for node in ast.walk(tree_of(place.file))
        if isinstance(node, FUNCTIONS)
        and min(part.lineno for part in (node, *node.decorator_list)) <= place.line <= (node.end_lineno or 0)
    ]
    return Function(place.file, max(around, key=lambda node: node.lineno)) if around else None


def class_at(place: Place | None) -> str:
    """Name the innermost class that a line stands in; "" where there is none."""
    around = [
        node
        for node in ast.walk(tree_of(place.file) if place else ast.Module([], []))
        if isinstance(node, ast.ClassDef)
        and place is not None
        and node.lineno <= place.line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno).name if around else ""


def attribute_of(path: str, me: str = "self") -> str:
    """Write what stands at a path of a model: `self.layers[0].weight`."""
    return me + "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in path.split("."))


def numbers_of(file: str, value: int) -> Iterator[str]:
    """List the names that a file gives to a number."""
    for node in tree_of(file).body if file else ():
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int(known))) if (
                known == value
            ):
                yield name


def name_of_nn(file: str) -> str:
    """Say by what name a file knows `torch.nn`."""
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.ImportFrom) and node.module == "torch":
            for one in node.names:
                if one.name == "nn":
                    return one.asname or "nn"
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.name == "torch.nn" and one.asname:
                    return one.asname
    return "torch.nn"


def in_brackets(code: str) -> str:
    """Write an expression so that a method can be called on it."""
    is_whole = isinstance(
        ast.parse(code.strip(), mode="eval").body, (ast.Name, ast.Call, ast.Attribute, ast.Subscript)
    )
    return code if is_whole else f"({code})"


def names_in(node: ast.AST) -> set[str]:
    """List the names that an expression reads."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}

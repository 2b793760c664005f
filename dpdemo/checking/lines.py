"""The user's own statements: finding the one that a finding is about, and rewriting it."""

import ast
import inspect
import linecache
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from dpdemo.models.frames import is_users
from dpdemo.reports.check import Place

Rewrite = Callable[[ast.expr, str], str | None]
"""Rewrites an expression, given its tree and its source; None where it cannot."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MUTATORS = frozenset(
    [
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popleft",
        "push",
        "put",
        "remove",
        "setdefault",
        "update",
        "__setitem__",
    ]
)
_STEP = re.compile(r"\[(\d+)\]|\['([^']*)'\]|\.(\w+)")


class Own(NamedTuple):
    """A statement of the user's, where it stands, and what to write in its place."""

    place: Place
    before: str
    after: str


@dataclass(frozen=True)
class Function:
    """A function of the user's, as it is written."""

    file: str
    node: ast.FunctionDef | ast.AsyncFunctionDef

    def statements(self) -> Iterator[ast.stmt]:
        """List its statements in order: those in loops and branches too, not those of functions in it."""
        yield from _within(self.node.body)

    def text(self, node: ast.AST) -> str:
        """Return the source of a part of it."""
        start, end = _span(self.file, node)
        return _source(self.file)[start:end]

    def own(self, statement: ast.stmt, part: ast.AST, text: str) -> Own:
        """Write a statement with one part of it replaced."""
        source = _source(self.file)
        (first, last), (start, end) = _span(self.file, statement), _span(self.file, part)
        lines = [source[first:last], source[first:start] + text + source[end:last]]
        before, after = (_to_the_left(one, statement.col_offset) for one in lines)
        code = linecache.getline(self.file, statement.lineno).strip()
        return Own(Place(self.file, statement.lineno, self.node.name, code), before, after)


def _within(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for one in body:
        if isinstance(one, (*_FUNCTIONS, ast.ClassDef)):
            continue
        yield one
        for name in ("body", "orelse", "finalbody"):
            yield from _within(getattr(one, name, []))
        for handler in getattr(one, "handlers", []):
            yield from _within(handler.body)


def _to_the_left(text: str, columns: int) -> str:
    return re.sub(rf"\n {{0,{columns}}}", "\n", text)


@cache
def _source(file: str) -> str:
    return "".join(linecache.getlines(file))


@cache
def tree_of(file: str) -> ast.Module:
    """Read a file of Python; an empty module where there is none to read."""
    try:
        return ast.parse(_source(file))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


@cache
def _line_starts(file: str) -> list[int]:
    starts, at = [], 0
    for line in linecache.getlines(file):
        starts.append(at)
        at += len(line)
    return starts


def _span(file: str, node: ast.AST) -> tuple[int, int]:
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
        if isinstance(node, _FUNCTIONS)
        and min(part.lineno for part in (node, *node.decorator_list)) <= place.line <= (node.end_lineno or 0)
    ]
    return Function(place.file, max(around, key=lambda node: node.lineno)) if around else None


def methods_of(owner: type) -> Iterator[Function]:
    """List the methods of a class, those that it inherits last."""
    for cls in owner.__mro__:
        yield from _own_methods(cls)


@cache
def _own_methods(cls: type) -> tuple[Function, ...]:
    try:
        file = inspect.getsourcefile(cls) or ""
        if not is_users(file):
            return ()
        _, first = inspect.getsourcelines(cls)
    except (OSError, TypeError):
        return ()
    return tuple(
        Function(file, part)
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__ and _begins(node, first)
        for part in node.body
        if isinstance(part, _FUNCTIONS)
    )


def _begins(node: ast.ClassDef, line: int) -> bool:
    return min([node.lineno, *(part.lineno for part in node.decorator_list)]) == line


def returned(forward: Place | None, path: str, rewrite: Rewrite) -> Own | None:
    """Rewrite the part of forward's result at a path, where it stands: in `return`, or a line before it.

    Args:
        forward: where forward is defined.
        path: as `[0]['boxes']` or `.field`; "" is the whole result.
        rewrite: rewrites the part.

    """
    function = function_at(forward)
    if function is None:
        return None
    ends = [one for one in function.statements() if isinstance(one, ast.Return) and one.value is not None]
    if len(ends) != 1:
        return None
    statement: ast.stmt = ends[0]
    found = ends[0].value
    for step in [*_STEP.finditer(path), None]:
        statement, found = _named(function, statement, found)
        if step is not None:
            found = _part(found, step)
    if found is None:
        return None
    text = rewrite(found, function.text(found))
    return None if text is None else function.own(statement, found, text)


def _named(
    function: Function, statement: ast.stmt, value: ast.expr | None
) -> tuple[ast.stmt, ast.expr | None]:
    """Follow a name to the one line that gives it a value, where that says more than the name."""
    if not isinstance(value, ast.Name):
        return statement, value
    given = [
        one
        for one in function.statements()
        if isinstance(one, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == value.id for target in one.targets)
    ]
    if len(given) == 1 and isinstance(given[0].value, (ast.Dict, ast.Tuple, ast.List, ast.IfExp, ast.Call)):
        return given[0], given[0].value
    return statement, value


def _part(value: ast.expr | None, step: re.Match[str]) -> ast.expr | None:
    """Find a part of a display, such as a dict's value, or of a call that makes an object of keywords."""
    number, key, field = step.groups()
    match value:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) if number and int(number) < len(parts):
            return parts[int(number)]
        case ast.Dict(keys=keys, values=values) if key:
            pairs = zip(keys, values, strict=True)
            return next((v for k, v in pairs if isinstance(k, ast.Constant) and k.value == key), None)
        case ast.Call(keywords=keywords):
            return next((one.value for one in keywords if one.arg == (key or field)), None)
    return None


def left_out(forward: Place | None, path: str) -> Own | None:
    """Write forward's result without the part at a path."""
    *outer, last = [step[0] for step in _STEP.finditer(path)] or [""]
    step = _STEP.fullmatch(last)
    if step is None:
        return None

    def rewrite(value: ast.expr, _: str) -> str | None:
        part = _part(value, step)
        match value:
            case ast.Tuple(elts=parts) if part is not None:
                kept = [ast.unparse(one) for one in parts if one is not part]
                return ", ".join(kept) if len(kept) != 1 or outer else kept[0]
            case ast.Dict(keys=keys, values=values) if part is not None:
                kept = [
                    f"**{ast.unparse(v)}" if k is None else f"{ast.unparse(k)}: {ast.unparse(v)}"
                    for k, v in zip(keys, values, strict=True)
                    if v is not part
                ]
                return f"{{{', '.join(kept)}}}"
        return None

    return returned(forward, "".join(outer), rewrite)


def writing(owner: type, name: str) -> tuple[Function, ast.stmt] | None:
    """Find the statement outside of `__init__` that writes to `self.<name>`, or to a part of it."""
    for method in methods_of(owner):
        if method.node.name == "__init__" or not method.node.args.args:
            continue
        me = method.node.args.args[0].arg
        for statement in method.statements():
            if any(_is_attribute(one, me, name) for one in _written(statement)):
                return method, statement
    return None


def writing_argument(forward: Place | None, name: str) -> tuple[Function, ast.stmt] | None:
    """Find the statement of forward that changes one of its arguments in place."""
    function = function_at(forward)
    for statement in function.statements() if function else ():
        rebinds = isinstance(statement, ast.Assign)
        for one in _written(statement):
            if isinstance(one, ast.Name) and one.id == name and not (rebinds and one in _targets(statement)):
                assert function is not None  # noqa: S101 - it has statements
                return function, statement
    return None


def _is_attribute(value: ast.expr, me: str, name: str) -> bool:
    match value:
        case ast.Attribute(value=ast.Name(id=owner), attr=attribute):
            return owner == me and attribute == name
    return False


def _targets(statement: ast.stmt) -> list[ast.expr]:
    match statement:
        case ast.Assign(targets=targets):
            return [part for one in targets for part in (one.elts if isinstance(one, ast.Tuple) else [one])]
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return [target]
    return []


def _written(statement: ast.stmt) -> Iterator[ast.expr]:
    """List what a statement writes to: its targets and their parts, and what a method changes in place."""
    for target in _targets(statement):
        yield from _roots(target)
    if isinstance(statement, (ast.Expr, ast.Assign, ast.Return)) and statement.value is not None:
        for node in ast.walk(statement.value):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                changes = node.func.attr in _MUTATORS or re.fullmatch(r"[a-z]\w*_", node.func.attr)
                is_alone = isinstance(statement, ast.Expr) and node is statement.value
                if changes or is_alone:
                    yield from _roots(node.func.value)


def _roots(value: ast.expr) -> Iterator[ast.expr]:
    """List an expression and what it is a part of: `self.a[0].b`, `self.a[0]`, `self.a` and `self`."""
    inner: ast.expr | None = value
    while inner is not None:
        yield inner
        match inner:
            case ast.Call(func=part) | ast.Attribute(value=part) | ast.Subscript(value=part):
                inner = part
            case _:
                inner = None


def in_brackets(code: str) -> str:
    """Write an expression so that a method can be called on it."""
    is_whole = isinstance(
        ast.parse(code.strip(), mode="eval").body, (ast.Name, ast.Call, ast.Attribute, ast.Subscript)
    )
    return code if is_whole else f"({code})"


def names_in(node: ast.AST) -> set[str]:
    """List the names that an expression reads."""
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}

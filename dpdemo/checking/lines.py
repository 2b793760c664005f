"""The user's own statements: finding the one that a finding is about, and rewriting it."""

import ast
import inspect
import linecache
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from dpdemo.models.frames import is_users
from dpdemo.reports.check import Place

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
        start, end = _span(self.file, node)
        return _source(self.file)[start:end]

    def own(self, statement: ast.stmt, *parts: tuple[ast.AST, str]) -> Own:
        """Write a statement with parts of it replaced."""
        source = _source(self.file)
        first, last = _span(self.file, statement)
        changed, at = "", first
        for (start, end), text in sorted((_span(self.file, part), text) for part, text in parts):
            changed, at = changed + source[at:start] + text, end
        lines = [source[first:last], changed + source[at:last]]
        before, after = (_to_the_left(one, statement.col_offset) for one in lines)
        code = linecache.getline(self.file, statement.lineno).strip()
        return Own(Place(self.file, statement.lineno, self.node.name, code), before, after)

    def block(self, body: list[ast.stmt], around: ast.stmt) -> str:
        """Return the source of a block as it is written in the place of the statement around it."""
        (start, _), (_, end) = _span(self.file, body[0]), _span(self.file, body[-1])
        deeper = body[0].col_offset - around.col_offset
        is_below = body[0].lineno > around.lineno
        text = _source(self.file)[start:end]
        return re.sub(rf"\n {{{deeper}}}", "\n", text) if is_below else text

    def rewritten(self, first: ast.stmt, last: ast.stmt, text: str) -> Own:
        """Write statements that follow each other anew; with `def`, where they stand in its line."""
        (start, _), (_, end) = _span(self.file, first), _span(self.file, last)
        source, after = _source(self.file), text
        is_beside = first.lineno == self.node.body[0].lineno == self.node.lineno
        outer: ast.stmt = self.node if is_beside else first
        if is_beside:
            start, _ = _span(self.file, outer)
            head = source[start : _span(self.file, first)[0]].rstrip()
            after = f"{head}\n{textwrap.indent(text, '    ')}"
        before = _to_the_left(source[start:end], outer.col_offset)
        code = linecache.getline(self.file, first.lineno).strip()
        return Own(Place(self.file, first.lineno, self.node.name, code), before, after)

    def whole(self, statement: ast.stmt, text: str) -> Own:
        """Write another statement in the place of one."""
        return self.own(statement, (statement, text))


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


def functions_like(function: Function) -> Iterator[Function]:
    """List the methods of the class that a function stands in, without `__init__`; a base class's too."""
    classes = [node for node in ast.walk(tree_of(function.file)) if isinstance(node, ast.ClassDef)]
    todo = [one for one in classes if function.node in one.body]
    seen: list[ast.ClassDef] = []
    while todo:
        seen.append(todo.pop(0))
        bases = {ast.unparse(base) for base in seen[-1].bases}
        todo += [one for one in classes if one.name in bases and one not in seen]
    for one in seen:
        yield from (
            Function(function.file, part)
            for part in one.body
            if isinstance(part, _FUNCTIONS) and part.name != "__init__"
        )


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


def writing(owner: type, name: str) -> tuple[Function, ast.stmt] | None:
    """Find the statement outside of `__init__` that writes to `self.<name>`, or to a part of it.

    `name` may be a path, as `layers.0.weight`.
    """
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


def _is_attribute(value: ast.expr, me: str, path: str) -> bool:
    """Whether an expression is what stands at a path of `self`."""
    return isinstance(value, ast.Attribute) and ast.unparse(value) == attribute_of(path, me)


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
                changes = changes_in_place(node.func.attr)
                is_alone = isinstance(statement, ast.Expr) and node is statement.value
                if changes or is_alone:
                    yield from _roots(node.func.value)


def changes_in_place(method: str) -> bool:
    """Whether a method of this name changes what it is called on: of a list, a dict or a tensor."""
    return method in _MUTATORS or re.fullmatch(r"[a-z]\w*_", method) is not None


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

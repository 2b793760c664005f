"""What statements of the user's write to, and which of them do."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.methods import methods_of, without_setup
from dpdemo.checking.repair import Repair
from dpdemo.checking.source import Function, attribute_of, function_at, names_in
from dpdemo.reports.check import Place

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


def lines_leading_to(place: Place) -> Iterator[Repair]:
    """List the statements that give a value to what a line reads, the last one first."""
    function = function_at(place)
    lines = list(function.statements()) if function else []
    here = [one for one in lines if one.lineno <= place.line <= (one.end_lineno or 0)]
    names = names_in(here[-1]) if here else set()
    for one in reversed(lines):
        made = _targets(one) if isinstance(one, ast.Assign) and one.lineno < place.line else []
        if function is not None and any(isinstance(part, ast.Name) and part.id in names for part in made):
            yield function.own(one)


def writes_to(function: Function, path: str) -> list[ast.stmt]:
    """List the statements of a method that write to what stands at a path of `self`, or to a part of it."""
    if not function.node.args.args:
        return []
    me = function.node.args.args[0].arg
    return [
        one
        for one in function.statements()
        if any(_is_attribute(part, me, path) for part in written_in(one)) or _sets(one, me, path)
    ]


def _sets(statement: ast.stmt, me: str, path: str) -> bool:
    """Whether it is `setattr(self, "name", ...)`."""
    match statement:
        case ast.Expr(ast.Call(func=ast.Name("setattr"), args=[ast.Name(id=owner), ast.Constant(name), _])):
            return owner == me and name == path
    return False


def writing(owner: type, name: str) -> tuple[Function, ast.stmt] | None:
    """Find the statement outside of `__init__` that writes to `self.<name>`, or to a part of it.

    `name` may be a path, as `layers.0.weight`.
    """
    for method in without_setup(methods_of(owner)):
        if method.node.name == "__init__" or not method.node.args.args:
            continue
        me = method.node.args.args[0].arg
        for statement in method.statements():
            if any(_is_attribute(one, me, name) for one in written_in(statement)):
                return method, statement
    return None


def writing_argument(forward: Place | None, name: str) -> tuple[Function, ast.stmt] | None:
    """Find the statement of forward that changes one of its arguments in place."""
    function = function_at(forward)
    for statement in function.statements() if function else ():
        rebinds = isinstance(statement, ast.Assign)
        for one in written_in(statement):
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


def written_in(statement: ast.stmt) -> Iterator[ast.expr]:
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

"""Finding the user's own lines in a traceback, on the stack, and in the source of a class."""

import ast
import inspect
import linecache
import sys
import textwrap
import traceback
from functools import cache
from types import TracebackType
from typing import Any

from dpdemo.checking.source import function_at
from dpdemo.models.frames import is_users, users_frames
from dpdemo.reports.check import Place


def places_in(trace: TracebackType | None) -> tuple[Place, ...]:
    """List the user's lines of a traceback, innermost last."""
    return tuple(
        Place(frame.filename, frame.lineno or 0, frame.name, frame.line or "")
        for frame in users_frames(trace)
    )


def functions_in(trace: TracebackType | None) -> tuple[str, ...]:
    """List the names of all functions of a traceback, innermost last."""
    return tuple(frame.name for frame in traceback.extract_tb(trace))


def calling_place() -> Place | None:
    """Find the user's line that is being executed in this thread."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if is_users(name):
            code = linecache.getline(name, frame.f_lineno).strip()
            return Place(name, frame.f_lineno, frame.f_code.co_name, code)
        frame = frame.f_back  # type: ignore[assignment] # ends with None
    return None


def source_around(place: Place) -> str:
    """Return the source of the function that a line stands in; the line alone where there is no file."""
    function = function_at(place)
    return function.text(function.node) if function else place.code


def place_of_function(function: Any) -> Place | None:
    """Find the line that defines a function of the user's, or the `__call__` of an object."""
    of_class = None if inspect.isroutine(function) else vars(type(function)).get("__call__")
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    code = code or getattr(of_class, "__code__", None)
    if code is None or not is_users(code.co_filename):
        return None
    return Place(code.co_filename, code.co_firstlineno, code.co_name)


def place_of_attribute(owner: type, name: str) -> Place | None:
    """Find the first line of a class, or of what it inherits from, that sets `self.<name>`."""
    for cls in owner.__mro__:
        for attribute, file, line, _ in _assignments(cls):
            if attribute == name:
                return Place(file, line, cls.__name__, linecache.getline(file, line).strip())
    return None


@cache
def _assignments(cls: type) -> tuple[tuple[str, str, int, str], ...]:
    try:
        file = inspect.getsourcefile(cls) or ""
        if not is_users(file):
            return ()
        lines, first = inspect.getsourcelines(cls)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return ()
    return tuple((name, file, first + line - 1, method) for name, line, method in _assigned(tree))


def _assigned(tree: ast.AST) -> list[tuple[str, int, str]]:
    """List the attributes that methods set on their first argument, with the line and the method."""
    found = []
    for method in ast.walk(tree):
        if not isinstance(method, ast.FunctionDef) or not method.args.args:
            continue
        me = method.args.args[0].arg
        for node in ast.walk(method):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            parts = [part for one in targets for part in (one.elts if isinstance(one, ast.Tuple) else [one])]
            found += [
                (part.attr, part.lineno, method.name)
                for part in parts
                if isinstance(part, ast.Attribute)
                and isinstance(part.value, ast.Name)
                and part.value.id == me
            ]
            found += [(name, node.lineno, method.name) for part in parts for name in _unseen(part, me)]  # type: ignore[attr-defined] # an assignment
            found += [(name, line, method.name) for name, line in _registered(node)]
    return sorted(found, key=lambda pair: pair[1])


def _unseen(target: ast.AST | None, me: str) -> list[str]:
    """Read the name in `self.__dict__["name"]`, by which a module is held and not registered."""
    match target:
        case ast.Subscript(value=value, slice=ast.Constant(str(name))):
            return [name] if ast.unparse(value) == f"{me}.__dict__" else []
    return []


def _registered(node: ast.AST) -> list[tuple[str, int]]:
    """Read the name in `self.register_buffer("name", ...)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
        return []
    name = node.args[0]
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
        return []
    return [(name.value, node.lineno)] if node.func.attr.startswith("register_") else []

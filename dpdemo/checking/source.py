"""The user's code as it is written: the only file of `checking/` that opens it.

It is read while evidence is collected, when the class object is known: rules get lines and texts.
"""

import ast
import inspect
import linecache
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import CodeType, TracebackType
from typing import Any

from dpdemo.checking.evidence import WriteStatement
from dpdemo.checking.questions.words import attribute_at
from dpdemo.models.frames import is_users, users_frames
from dpdemo.results.findings import Place

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_MUTATORS = frozenset(
    (
        "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popleft", "push",
        "put", "remove", "setdefault", "update",
    )
)  # fmt: skip
"""Methods that change a list, a set, a dict or a queue; those of tensors end in `_`."""


# lines and texts


def line_of(file: str, line: int, function: str = "") -> Place:
    """Return a line of a file, with its code."""
    return Place(file, line, function, linecache.getline(file, line).strip())


def places_in(trace: TracebackType | None) -> tuple[Place, ...]:
    """List the user's lines of a traceback, innermost last."""
    return tuple(
        Place(frame.filename, frame.lineno or 0, frame.name, frame.line or "")
        for frame in users_frames(trace)
    )


def functions_in(trace: TracebackType | None) -> tuple[str, ...]:
    """List the names of all functions of a traceback, innermost last."""
    return tuple(frame.name for frame in traceback.extract_tb(trace))


def text_around(places: Iterable[Place]) -> str:
    """Return the source of the functions that some lines are in; a line alone where there is no file."""
    found = {}
    for place in places:
        node = _function_at(place)
        found[place.file, node.lineno if node else place.line] = (
            ast.get_source_segment(_text(place.file), node) if node else place.code
        )
    return "\n".join(text or "" for text in found.values())


def calling_place() -> Place | None:
    """Find the user's line that this thread executes."""
    frame = sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return line_of(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment] # ends with None
    return None


# functions


def code_of(function: Any) -> CodeType | None:
    """Return the code of a function of the user's, of a method, or of an object's `__call__`."""
    of_class = None if inspect.isroutine(function) else vars(type(function)).get("__call__")
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    code = code or getattr(of_class, "__code__", None)
    return code if isinstance(code, CodeType) and is_users(code.co_filename) else None


def place_of_function(function: Any) -> Place | None:
    """Find the line that defines a function of the user's."""
    code = code_of(function)
    node = _defined_by(code)
    if code is None:
        return None
    return line_of(code.co_filename, node.lineno if node else code.co_firstlineno, code.co_name)


def place_of_return(function: Any) -> Place | None:
    """Find the only `return` of a function of the user's; None where it has several, or more than a line."""
    code = code_of(function)
    node = _defined_by(code)
    ends = (
        [statement for statement in _statements(node.body) if isinstance(statement, ast.Return)]
        if node
        else []
    )
    if code is None or len(ends) != 1:
        return None
    return line_of(code.co_filename, ends[0].lineno, code.co_name)


def writing_argument(function: Any, name: str) -> WriteStatement:
    """Find the statement of a function that changes one of its arguments in place."""
    code = code_of(function)
    node = _defined_by(code)
    found = _first_write(code.co_filename, node, name) if code and node else None
    return found or WriteStatement()


# classes


def place_of_attribute(owner: type, name: str) -> Place | None:
    """Find the first line of a class, or of what it inherits from, that sets `self.<name>`."""
    for cls in owner.__mro__:
        for attribute, file, line, method in _assignments(cls):
            if attribute == name:
                return line_of(file, line, method)
    return None


def place_of_part(path: str, owner_of: Callable[[str], type | None]) -> Place | None:
    """Find the line that makes the module at a path of a model, or the module around it.

    Args:
        path: the module's.
        owner_of: gives the class of the module at a path.

    """
    while path:
        path, _, name = path.rpartition(".")
        owner = owner_of(path)
        place = place_of_attribute(owner, name) if owner is not None else None
        if place is not None:
            return place
    return None


def writing(owner: type, path: str) -> WriteStatement | None:
    """Find the statement that forward leads to and that writes to `self.<path>`, or to a part of it.

    Methods that `__init__` alone leads to are left out.
    """
    methods = _all_methods(owner)
    ran, setup = _reached(methods, "forward"), _reached(methods, "__init__")
    for file, method in methods:
        is_setup = method.name == "__init__" or (method.name in setup and method.name not in ran)
        if is_setup or not method.args.args:
            continue
        if found := _first_write(file, method, attribute_at(path, method.args.args[0].arg)):
            return found
    return None


def _first_write(file: str, function: _Function, target: str) -> WriteStatement | None:
    """Find the first statement that writes to what an expression stands for; a name of its own it may get."""
    for statement in _statements(function.body):
        renamed = _targets(statement) if isinstance(statement, ast.Assign) else []
        for part in _written_in(statement):
            is_renamed = isinstance(part, ast.Name) and part in renamed
            if isinstance(part, ast.Name | ast.Attribute) and ast.unparse(part) == target and not is_renamed:
                return _written(file, function, statement, target)
    return None


def reads_in_forward(owners: Iterable[type], name: str) -> bool:
    """Whether a forward of these classes, or a method that it leads to, reads an attribute of this name."""
    for methods in map(_all_methods, owners):
        ran = _reached(methods, "forward")
        parts = (part for _, method in methods if method.name in ran for part in ast.walk(method))
        if any(
            isinstance(part, ast.Attribute) and part.attr == name and isinstance(part.ctx, ast.Load)
            for part in parts
        ):
            return True
    return False


def _written(file: str, function: _Function, statement: ast.stmt, target: str) -> WriteStatement:
    text = ast.get_source_segment(_text(file), statement) or ast.unparse(statement)
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    body = function.body if function.name == "forward" else []
    others = [other for other in body if other is not statement]
    is_read = any(target in ast.unparse(other) for other in others)
    place = line_of(file, statement.lineno, function.name)
    return WriteStatement(text, place, statement in body and names <= {"self"} and not is_read)


def _all_methods(owner: type) -> list[tuple[str, _Function]]:
    """List the methods of a class and of what it inherits from, each with its file."""
    return [pair for cls in owner.__mro__ for pair in _methods(cls)]


def _reached(methods: list[tuple[str, _Function]], first: str) -> set[str]:
    """Name a method, and the methods and properties that it leads to."""
    found, todo = set[str](), [first]
    while todo:
        name = todo.pop()
        called = [method for _, method in methods if method.name == name and name not in found]
        found |= {name} if called else set()
        todo += [part.attr for node in called for part in ast.walk(node) if isinstance(part, ast.Attribute)]
    return found


@cache
def _methods(cls: type) -> tuple[tuple[str, _Function], ...]:
    file, node = _class(cls)
    return tuple((file, part) for part in node.body if isinstance(part, _Function)) if node else ()


@cache
def _assignments(cls: type) -> tuple[tuple[str, str, int, str], ...]:
    """List the attributes that methods of a class set on `self`, each with its line and method."""
    file, node = _class(cls)
    found = []
    for method in ast.walk(node) if node else ():
        if not isinstance(method, ast.FunctionDef) or not method.args.args:
            continue
        me = method.args.args[0].arg
        for inner in ast.walk(method):
            found += [
                (name, file, part.lineno, method.name)
                for part in _targets(inner)
                if (name := _set_by(part, me))
            ]
            match inner:
                case ast.Call(func=ast.Attribute(attr=attr), args=[ast.Constant(value=str(name)), *_]):
                    found += [(name, file, inner.lineno, method.name)] * attr.startswith("register_")
    return tuple(sorted(found, key=lambda each: each[2]))


def _set_by(target: ast.expr, me: str) -> str:
    """Read the name in `self.name` or `self.__dict__["name"]`."""
    match target:
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return name if owner == me else ""
        case ast.Subscript(value=value, slice=ast.Constant(value=str(name))):
            return name if ast.unparse(value) == f"{me}.__dict__" else ""
    return ""


@cache
def _class(cls: type) -> tuple[str, ast.ClassDef | None]:
    """Find a class of the user's in its file."""
    try:
        file = inspect.getsourcefile(cls) or ""
        first = inspect.getsourcelines(cls)[1] if is_users(file) else 0
    except (OSError, TypeError):
        return "", None
    for node in ast.walk(_tree(file)) if first else ():
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__ and _begins_at(node) == first:
            return file, node
    return file, None


# statements


def _targets(statement: ast.AST) -> list[ast.expr]:
    match statement:
        case ast.Assign(targets=targets):
            return [
                part
                for target in targets
                for part in (target.elts if isinstance(target, ast.Tuple) else [target])
            ]
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return [target]
    return []


def _written_in(statement: ast.stmt) -> Iterator[ast.expr]:
    """List what a statement writes to: its targets and their parts, and what a method changes in place."""
    for target in _targets(statement):
        yield from _roots(target)
    if isinstance(statement, (ast.Expr, ast.Assign, ast.Return)) and statement.value is not None:
        for node in ast.walk(statement.value):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                name = node.func.attr
                changes = name in _MUTATORS or (name.endswith("_") and not name.startswith("_"))
                if changes or (isinstance(statement, ast.Expr) and node is statement.value):
                    yield from _roots(node.func.value)
            match node:
                case ast.Call(func=ast.Name(id="setattr"), args=[owner, ast.Constant(value=str(name)), _]):
                    yield ast.Attribute(owner, name, ast.Store())


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


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """List statements in order: those in loops and branches too, not those of functions in them."""
    for statement in body:
        if isinstance(statement, _Function | ast.ClassDef):
            continue
        yield statement
        for name in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, name, []))
        for handler in getattr(statement, "handlers", []):
            yield from _statements(handler.body)


# files


@cache
def _text(file: str) -> str:
    return "".join(linecache.getlines(file))


@cache
def _tree(file: str) -> ast.Module:
    """Parse a file of Python; an empty module where there is none."""
    try:
        return ast.parse(_text(file))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _begins_at(node: ast.ClassDef | _Function) -> int:
    """Return the line of a definition, or that of its first decorator."""
    return min(part.lineno for part in (node, *node.decorator_list))


def _defined_by(code: CodeType | None) -> _Function | None:
    if code is None:
        return None
    known = code.co_name, code.co_firstlineno
    functions = (node for node in ast.walk(_tree(code.co_filename)) if isinstance(node, _Function))
    return next((node for node in functions if (node.name, _begins_at(node)) == known), None)


def _function_at(place: Place) -> _Function | None:
    """Find the innermost function of the user's that a line is in."""
    if not is_users(place.file):
        return None
    functions = (node for node in ast.walk(_tree(place.file)) if isinstance(node, _Function))
    around = (node for node in functions if node.lineno <= place.line <= (node.end_lineno or 0))
    return max(around, key=lambda node: node.lineno, default=None)

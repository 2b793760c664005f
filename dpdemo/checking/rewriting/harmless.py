"""What a user's hook does, as far as it is written: whether it keeps nothing, or each GPU's apart."""

import ast
import builtins
import re
from collections import deque
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from dpdemo.checking.source import FUNCTIONS, Function, function_at, tree_of
from dpdemo.checking.writes import changes_in_place
from dpdemo.reports.check import Place

_LOGS = ("logging", "logger", "_logger", "LOGGER", "log", "warnings")
_LIBRARIES = frozenset(["torch", "F", "nn", "functional", "math", *_LOGS, *dir(builtins)]) - {
    *("setattr", "delattr", "vars", "globals", "exec", "eval", "open")
}
"""Roots of calls that keep nothing of what they are given."""


def is_harmless(hook: Place | None) -> bool:
    """Whether all of a hook can be read, and it keeps nothing, or each GPU's in an entry of its own.

    What it writes to the module that it is given, a replica, goes with that.
    """
    given, parts = what_runs(hook)
    passing = set(given[-2 if len(given) > 2 else -1 :])  # what went in and came out; no module
    names = given[1:] if given[:1] == ["self"] else given
    known = _LIBRARIES | (_imported_in(hook.file) if hook is not None else set())
    return bool(parts) and _is_readable(parts, passing, set(names[:1]), _methods_beside(hook), known)


def _imported_in(file: str) -> set[str]:
    """Name what a file imports from libraries whose functions keep nothing."""
    found: set[str] = set()
    for one in ast.walk(tree_of(file)):
        match one:
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] in _OF_NUMBERS:
                found |= {name.asname or name.name for name in names}
            case ast.Import(names=names):
                known = [name for name in names if name.name.partition(".")[0] in _OF_NUMBERS]
                found |= {(name.asname or name.name).partition(".")[0] for name in known}
    return found


_OF_NUMBERS = ("math", "cmath", "operator", "itertools", "functools", "numpy", "torch", "einops")


def only_looks(hook: Place | None) -> bool:
    """Whether a hook is a function that keeps nothing and returns nothing: it may run more than once."""
    function = function_of(hook)
    ends = [one for one in function.statements() if isinstance(one, ast.Return)] if function else []
    return function is not None and all(one.value is None for one in ends) and is_harmless(hook)


def _methods_beside(hook: Place | None) -> dict[str, Function]:
    """List the methods of the class that a hook is one of, by how they are called there.

    And those of all classes of its file by their own names, where one has that name alone.
    """
    function, found = function_of(hook), {}
    if function is not None and "self" in function.arguments():
        found = {f"self.{one.node.name}": one for one in methods_around(function)}
    if hook is None:
        return found
    every = [one for one in ast.walk(tree_of(hook.file)) if isinstance(one, ast.ClassDef)]
    methods = [part for cls in every for part in cls.body if isinstance(part, FUNCTIONS)]
    names = [one.name for one in methods]
    return found | {one.name: Function(hook.file, one) for one in methods if names.count(one.name) == 1}


def _is_readable(
    parts: Sequence[ast.AST],
    passing: set[str],
    modules: set[str],
    methods: dict[str, Function],
    libraries: AbstractSet[str],
) -> bool:
    """Whether code keeps nothing, nor do the methods that it calls of its object."""
    own = (name for part in parts for name in (*_stored_in(part), *_raised_in(part)))
    known = {*passing, *libraries, *own}
    for one in [node for part in parts for node in ast.walk(part)]:
        inner = methods.get(ast.unparse(one.func)) if isinstance(one, ast.Call) else None
        others = {name: method for name, method in methods.items() if method is not inner}
        given = inner.arguments() - {"self"} if inner is not None else set()
        if inner is not None and _is_readable(inner.node.body, set(), given, others, libraries):
            continue
        if _is_written_to(one, modules) or _is_run(one, modules) or _is_kept_by_gpu(one, methods, libraries):
            continue
        if not _keeps_nothing(one, known, passing):
            return False
    return True


def _is_run(node: ast.AST, modules: set[str]) -> bool:
    """Whether it calls a part of the module that a hook is given: a replica's own, as forward would."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name) as called):
            return root_of(called) in modules and not changes_in_place(name)
    return False


_OF_CONTAINERS = frozenset(name for kind in (list, dict, set, deque) for name in dir(kind))


def _is_kept_by_gpu(node: ast.AST, methods: dict[str, Function], libraries: AbstractSet[str]) -> bool:
    """Whether it calls the only method of that name in the file, which keeps nothing, or each GPU's apart."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) if name in methods and name not in _OF_CONTAINERS:
            inner = methods[name]
            if _is_of_a_thread(inner):
                return True
            others = {other: method for other, method in methods.items() if method is not inner}
            return _is_readable(inner.node.body, inner.arguments() - {"self"}, set(), others, libraries)
    return False


def _is_of_a_thread(method: Function) -> bool:
    """Whether it is a method of a `threading.local`, of which each replica's thread has its own."""
    classes = [one for one in ast.walk(tree_of(method.file)) if isinstance(one, ast.ClassDef)]
    bases = [ast.unparse(base) for one in classes if method.node in one.body for base in one.bases]
    return any(one in {"threading.local", "local"} for one in bases)


def _is_written_to(node: ast.AST, modules: set[str]) -> bool:
    """Whether it sets an attribute of a module that a hook is given, or asks one of it."""
    match node:
        case ast.Attribute(value=ast.Name(name), ctx=ast.Store() | ast.Del()):
            return name in modules
        case ast.Call(func=ast.Name("setattr" | "delattr"), args=[ast.Name(name), *_]):
            return name in modules
    return False


def what_runs(hook: Place | None) -> tuple[list[str], list[ast.stmt] | list[ast.expr]]:
    """Return the arguments of a hook and what is in it; nothing where it cannot be told which it is."""
    function = function_of(hook)
    if function is not None:
        return [one.arg for one in function.node.args.args], function.node.body
    tree = tree_of(hook.file) if hook is not None and hook.function == "<lambda>" else ast.Module([], [])
    found = [
        one for one in ast.walk(tree) if isinstance(one, ast.Lambda) and hook and one.lineno == hook.line
    ]
    return ([one.arg for one in found[0].args.args], [found[0].body]) if len(found) == 1 else ([], [])


def function_of(hook: Place | None) -> Function | None:
    """Find a hook that is a function of its own; a lambda stands in another's."""
    function = function_at(hook)
    return function if function is not None and hook and function.node.name == hook.function else None


def _keeps_nothing(node: ast.AST, known: set[str], passing: set[str]) -> bool:
    """Whether a part of a hook neither writes to anything that outlives it nor calls what may."""
    match node:
        case (
            ast.Global()
            | ast.Nonlocal()
            | ast.Yield()
            | ast.Await()
            | ast.Attribute(ctx=ast.Store() | ast.Del())
        ):
            return False
        case ast.Subscript(value=value, slice=key, ctx=ast.Store() | ast.Del()):
            return is_by_gpu(key) or _is_of_a_gpu(value)
        case ast.Call(func=ast.Attribute(attr="update"), args=[ast.Dict(keys=keys)], keywords=[]):
            return all(key is not None and is_by_gpu(key) for key in keys)
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if changes_in_place(name):
            is_of_its_chunk = name.endswith("_") and root_of(value) in passing  # output.requires_grad_()
            return is_of_its_chunk or _is_of_a_gpu(node) or _is_of_a_gpu(value)
        case ast.Call(func=called):
            is_of_a_result = isinstance(getattr(called, "value", None), (ast.BinOp, ast.UnaryOp, ast.Compare))
            return is_of_a_result or root_of(called) in known
    return True


def _is_of_a_gpu(value: ast.AST) -> bool:
    """Whether it is an entry of a GPU's own: `parts[x.device]`, or `parts.setdefault(x.device, {})`."""
    match value:
        case ast.Subscript(slice=key) | ast.Call(func=ast.Attribute(attr="setdefault"), args=[key, *_]):
            return is_by_gpu(key)
    return False


def is_by_gpu(value: ast.expr) -> bool:
    """Whether a key, or an element of a container, has the GPU in its name."""
    return re.search(r"\.(device|get_device\(\))", ast.unparse(value)) is not None


def methods_around(function: Function) -> Iterator[Function]:
    """List the methods of the class that a function stands in, be it in one of them."""
    classes = [
        one
        for one in ast.walk(tree_of(function.file))
        if isinstance(one, ast.ClassDef) and one.lineno <= function.node.lineno <= (one.end_lineno or 0)
    ]
    for one in classes[-1].body if classes else ():
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield Function(function.file, one)


def root_of(value: ast.expr) -> str:
    """Name what an attribute or an element belongs to in the end; "" where that is no name."""
    while isinstance(value, (ast.Attribute, ast.Subscript, ast.Call)):
        value = value.func if isinstance(value, ast.Call) else value.value
    return value.id if isinstance(value, ast.Name) else ""


def _stored_in(part: ast.AST) -> Iterator[str]:
    for one in ast.walk(part):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            yield one.id


def _raised_in(part: ast.AST) -> Iterator[str]:
    """List the exceptions that are made where they are raised: they keep nothing."""
    for one in ast.walk(part):
        match one:
            case ast.Raise(exc=ast.Call(func=kind)):
                yield root_of(kind)

"""What a user's hook does, as far as it is written: whether it keeps anything, and each GPU's apart."""

import ast
import builtins
import re
from collections.abc import Iterator

from dpdemo.checking.lines import Function, Own, changes_in_place, function_at, names_in, tree_of
from dpdemo.reports.check import Place

_LIBRARIES = frozenset(["torch", "F", "nn", "functional", "math", *dir(builtins)]) - {
    *("setattr", "delattr", "vars", "globals", "exec", "eval", "open")
}
"""Roots of calls that keep nothing of what they are given."""


def kept_by_gpu(hook: Place | None) -> Own | None:
    """Write a hook's line that keeps an output by name, and the same with its GPU in the key."""
    function = _function_of(hook)
    given = [one.arg for one in function.node.args.args] if function else []
    for statement in function.statements() if function else ():
        match statement:
            case ast.Assign(targets=[ast.Subscript(slice=key) as target], value=value) if function and given:
                if names_in(value) & {given[-1]} and not _is_by_gpu(key):
                    by_gpu = f"{function.text(key)}, {given[-1]}.device"
                    own = function.own(statement, (key, by_gpu))
                    read = f"{function.text(target.value)}[..., x.device]"
                    return own._replace(after=f"{own.after}   # and read as {read}; join them after the call")
    return None


def is_harmless(hook: Place | None) -> bool:
    """Whether all of a hook can be read, and it keeps nothing, or each GPU's in an entry of its own."""
    given, parts = _what_runs(hook)
    known = {*given[-2 if len(given) > 2 else -1 :], *_LIBRARIES}  # what went in and came out; no module
    known |= {name for part in parts for name in _stored_in(part)}
    return bool(parts) and all(_keeps_nothing(one, known) for part in parts for one in ast.walk(part))


def _what_runs(hook: Place | None) -> tuple[list[str], list[ast.stmt] | list[ast.expr]]:
    """Return the arguments of a hook and what is in it; nothing where it cannot be told which it is."""
    function = _function_of(hook)
    if function is not None:
        return [one.arg for one in function.node.args.args], function.node.body
    tree = tree_of(hook.file) if hook is not None and hook.function == "<lambda>" else ast.Module([], [])
    found = [
        one for one in ast.walk(tree) if isinstance(one, ast.Lambda) and hook and one.lineno == hook.line
    ]
    return ([one.arg for one in found[0].args.args], [found[0].body]) if len(found) == 1 else ([], [])


def _function_of(hook: Place | None) -> Function | None:
    """Find a hook that is a function of its own; a lambda stands in another's."""
    function = function_at(hook)
    return function if function is not None and hook and function.node.name == hook.function else None


def _keeps_nothing(node: ast.AST, known: set[str]) -> bool:
    """Whether a part of a hook neither writes to anything that outlives it nor calls what may."""
    match node:
        case ast.Global() | ast.Nonlocal() | ast.Yield() | ast.Await():
            return False
        case ast.Attribute(ctx=ast.Store() | ast.Del()):
            return False
        case ast.Subscript(slice=key, ctx=ast.Store() | ast.Del()):
            return _is_by_gpu(key)
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if changes_in_place(name):
            return isinstance(value, ast.Subscript) and _is_by_gpu(value.slice)
        case ast.Call(func=called):
            return _root(called) in known
    return True


def _is_by_gpu(value: ast.expr) -> bool:
    """Whether a key, or an element of a container, has the GPU in its name."""
    return re.search(r"\.(device|get_device\(\))", ast.unparse(value)) is not None


def _root(value: ast.expr) -> str:
    """Name what an attribute or an element belongs to in the end; "" where that is no name."""
    while isinstance(value, (ast.Attribute, ast.Subscript, ast.Call)):
        value = value.func if isinstance(value, ast.Call) else value.value
    return value.id if isinstance(value, ast.Name) else ""


def _stored_in(part: ast.AST) -> Iterator[str]:
    for one in ast.walk(part):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            yield one.id

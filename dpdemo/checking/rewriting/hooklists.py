"""A list that a hook appends to, and forward reads: a list for each GPU, of which a replica reads its own."""

import ast
from collections.abc import Iterator

from dpdemo.checking.evidence import Evidence
from dpdemo.checking.looking import device_at
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.source import FUNCTIONS, Function, tree_of
from dpdemo.reports.check import Change, Place


def list_by_gpu(hook: Place | None, evidence: Evidence) -> tuple[Change, ...]:
    """Write the lines that make, fill, empty and read a list, and ones that have a list for each GPU.

    Args:
        hook: where the hook is, be it a lambda.
        evidence: what the check saw.

    Returns:
        () where the hook appends to no list of the class that it stands in.

    """
    if hook is None:
        return ()
    appended = next(_appends(hook), None)
    home = next((one for one in _classes(hook) if appended and _makes(one, ast.unparse(appended[0]))), None)
    if appended is None or home is None:
        return ()
    kept, call = appended
    name, edits = ast.unparse(kept), Edits(hook.file)
    value = ast.unparse(call.args[0])
    edits.replace(call, f"{name}.setdefault({value.partition('.')[0]}.device, []).append({value})")
    for node in (one for one in home.body if isinstance(one, FUNCTIONS)):
        method = Function(hook.file, node)
        at = device_at(Place(hook.file, node.lineno), evidence)
        _in_a_method(method, name, at, edits, call)
    return edits.changes()


def _in_a_method(method: Function, name: str, at: str, edits: Edits, append: ast.Call) -> None:
    inside = {id(one) for one in ast.walk(append)}
    for statement in method.statements():
        match statement:
            case ast.Assign(targets=[target], value=value) if ast.unparse(target) == name:
                is_made = method.node.name == "__init__"
                edits.replace(statement, f"{name} = {{}}" if is_made else f"{name}[{at}] = []")
                inside |= {id(one) for one in ast.walk(statement)}
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=value, attr="clear"))):
                if ast.unparse(value) == name:
                    edits.replace(statement, f"{name}[{at}] = []")
                    inside |= {id(one) for one in ast.walk(statement)}
    for node in ast.walk(method.node):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == name and id(node) not in inside:
            edits.replace(node, f"{name}[{at}]")


def _appends(hook: Place) -> Iterator[tuple[ast.expr, ast.Call]]:
    """List what a hook appends to, with the call that does."""
    for function in ast.walk(tree_of(hook.file)):
        is_it = isinstance(function, (*FUNCTIONS, ast.Lambda)) and function.lineno == hook.line
        for node in ast.walk(function) if is_it else ():
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Attribute() as kept, attr="append"), args=[_]):
                    yield kept, node


def _classes(hook: Place) -> list[ast.ClassDef]:
    """List the classes around a line, the innermost first."""
    every = (one for one in ast.walk(tree_of(hook.file)) if isinstance(one, ast.ClassDef))
    return sorted(
        (one for one in every if one.lineno <= hook.line <= (one.end_lineno or 0)),
        key=lambda one: -one.lineno,
    )


def _makes(home: ast.ClassDef, name: str) -> bool:
    """Whether a class makes an empty list of this name in `__init__`."""
    return any(
        isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == name and ast.unparse(one.value) == "[]"
        for method in home.body
        if isinstance(method, FUNCTIONS) and method.name == "__init__"
        for one in ast.walk(method)
    )

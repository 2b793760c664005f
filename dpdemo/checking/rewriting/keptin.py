"""What a hook keeps outputs in, by the name that the model has for it."""

import ast
from collections.abc import Iterator

from dpdemo.checking.source import FUNCTIONS, Function, tree_of


def kept_in(hook: Function, kept: ast.expr) -> tuple[str, Function]:
    """Write what a hook keeps outputs in, and find a method of the class that has it.

    That is another class where the hook is an object that was made with it: `Tap(self.kept, name)`.
    """
    tree = tree_of(hook.file)
    classes = [one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)]
    owner = next((one for one in classes if hook.node in one.body), None)
    init = (
        next((one for one in owner.body if getattr(one, "name", "") == "__init__"), None) if owner else None
    )
    if owner is None or not isinstance(init, ast.FunctionDef):
        return _attribute_behind(hook, kept), hook
    pairs = [pair for one in Function(hook.file, init).statements() for pair in _assigned(one)]
    given = next((name for target, name in pairs if target == ast.unparse(kept)), "")
    names = [one.arg for one in init.args.args[1:]]
    makers = [one for one in ast.walk(tree) if isinstance(one, FUNCTIONS)]
    for maker in reversed(makers):  # the innermost first
        for call in (one for one in ast.walk(maker) if isinstance(one, ast.Call)):
            value = dict(zip(names, call.args, strict=False)).get(given)
            if ast.unparse(call.func) == owner.name and isinstance(value, ast.Attribute):
                return ast.unparse(value), Function(hook.file, maker)
    return _attribute_behind(hook, kept), hook


def _assigned(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    """List the names that a statement gives attributes: `self.kept, self.name = kept, name`."""
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            pairs = list(zip(targets, values, strict=False))
        case ast.Assign(targets=[target], value=value):
            pairs = [(target, value)]
        case _:
            pairs = []
    yield from ((ast.unparse(target), value.id) for target, value in pairs if isinstance(value, ast.Name))


def _attribute_behind(hook: Function, kept: ast.expr) -> str:
    """Write what a hook keeps outputs in: of a name that the function around it gives an attribute, that.

    The function may be given it: `tap(self.kept, name)`.
    """
    if not isinstance(kept, ast.Name):
        return ast.unparse(kept)
    tree = tree_of(hook.file)
    makers = [one for one in ast.walk(tree) if isinstance(one, FUNCTIONS) and hook.node in ast.walk(one)]
    for maker in (one for one in makers if one is not hook.node):
        for one in Function(hook.file, maker).statements():
            match one:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute() as value):
                    if name == kept.id:
                        return ast.unparse(value)
    for maker in makers:
        if found := _handed_over(maker, kept.id, tree):
            return found
    return ast.unparse(kept)


def _handed_over(
    function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, tree: ast.AST, depth: int = 0
) -> str:
    """Write the attribute that a function is given by that name, directly or not; "" if none is seen."""
    names = [one.arg for one in function.args.args]
    for call in (one for one in ast.walk(tree) if isinstance(one, ast.Call) and name in names):
        func, *parts = [call.func, *call.args]
        if ast.unparse(func).rpartition(".")[2] == "partial" and parts:
            func, *parts = parts
        if ast.unparse(func).rpartition(".")[2] != function.name:
            continue
        own = names[1:] if names[0] == "self" and isinstance(func, ast.Attribute) else names
        value = dict(zip(own, parts, strict=False)).get(name)
        if isinstance(value, ast.Attribute):
            return ast.unparse(value)
        around = [one for one in ast.walk(tree) if isinstance(one, FUNCTIONS) and call in ast.walk(one)]
        if isinstance(value, ast.Name) and around and depth < _FURTHEST:
            return _handed_over(around[-1], value.id, tree, depth + 1)
    return ""


_FURTHEST = 2
"""Through so many functions a dict is handed on to the one that makes a hook."""

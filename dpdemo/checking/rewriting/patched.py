"""How a module that was given another forward by hand is given it through its class, where replicas look."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.source import FUNCTIONS, Function, function_at, tree_of
from dpdemo.reports.check import Place

_Patch = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def forward_repair(use: Place | None) -> Repair | None:
    """Write the line that gives a module another forward, and one that gives it a class that has it.

    The line is the only one of its file, or the one whose new forward has the line that failed.
    """
    found = list(_patches(use.file)) if use is not None else []
    if len(found) > 1:
        found = [(home, one) for home, one in found if _is_within(use, _written_forward(home, one.value))]
    if len(found) != 1:
        return None
    ((function, patch),) = found
    assert isinstance(patch.targets[0], ast.Attribute)  # noqa: S101 - so it was found
    owner = function.text(patch.targets[0].value)
    match patch.value:
        case ast.Call(func=called, args=[method, ast.AST() as bound], keywords=[]):
            if _BINDERS.search(ast.unparse(called)) and function.text(bound) == owner:
                before, after = _around_method(owner)
                return function.whole(patch, f"{owner}.__class__ = {before}{function.text(method)}{after}")
    own = _as_method(function, patch, owner)
    if own is not None:
        return own
    told = "# its instance in place of this line: replicas look forward up in their class"
    inner = "    def forward(self, *args, **kwargs): ...   # around super().forward(*args, **kwargs)"
    return function.rewritten(patch, patch, f"class Patched(type({owner})):   {told}\n{inner}")


_BINDERS = re.compile(r"\b(MethodType|partial)$")
"""What binds a function to the module that it is given first."""


def _patches(file: str) -> Iterator[tuple[Function, ast.Assign]]:
    """List the statements of a file's functions that assign a module's `forward`."""
    for node in ast.walk(tree_of(file)):
        match node:
            case ast.Assign(targets=[ast.Attribute(attr="forward")]):
                function = function_at(Place(file, node.lineno))
                if function is not None:
                    yield function, node


def _is_within(place: Place | None, forward: _Patch | None) -> bool:
    """Whether a line is one of a new forward."""
    if place is None or forward is None:
        return False
    return forward.lineno <= place.line <= (forward.end_lineno or 0)


def _around_method(owner: str) -> tuple[str, str]:
    """Write what stands before and behind a method, to make a class of it that inherits from a module's."""
    return f'type("Patched", (type({owner}),), {{"forward": ', "})"


def _as_method(function: Function, patch: ast.Assign, owner: str) -> Repair | None:
    """Write a lambda, or a function in this one, with `self` in place of the module that it is given to.

    None where it uses the module, or the forward that the module had, in a way that cannot be followed.
    """
    forward = _written_forward(function, patch.value)
    first = next(_parameters(forward), None) if forward is not None else None
    if forward is None or first is None or "self" in {one.arg for one in _parameters(forward)}:
        return None
    olds = {ast.unparse(one.targets[0]): one.value for one in _old_forwards(function, owner)}
    edits = Edits(function.file)
    uses = list(_uses(forward, {owner, *olds}))
    calls = {id(one.func): one for one in ast.walk(forward) if isinstance(one, ast.Call)}
    for use in uses:
        given = [*calls[id(use)].args, *calls[id(use)].keywords] if id(use) in calls else []
        if ast.unparse(use) == owner:
            edits.replace(use, "self")
        elif given:  # a call of the forward that it had, now of the class's
            edits.in_front(given[0], "self, ")
        else:
            return None
    if any(one.id == owner.partition(".")[0] for one in _names(forward, uses)):
        return None
    edits.in_front(first, "self, ")
    for value in olds.values():
        edits.replace(value, f"type({owner}).forward")
    edits.replace(patch.targets[0], f"{owner}.__class__")
    edits.around(patch.value, *_around_method(owner))
    return repair_of(edits.changes())


def _written_forward(function: Function, value: ast.expr) -> _Patch | None:
    """Find the lambda, or the function in this one, that becomes the new forward."""
    if isinstance(value, ast.Lambda):
        return value
    inner = (
        one for one in ast.walk(function.node) if isinstance(one, FUNCTIONS) and one is not function.node
    )
    return next((one for one in inner if isinstance(value, ast.Name) and one.name == value.id), None)


def _parameters(forward: _Patch) -> Iterator[ast.arg]:
    """List the parameters that are given by their place."""
    yield from (*forward.args.posonlyargs, *forward.args.args)


def _old_forwards(function: Function, owner: str) -> Iterator[ast.Assign]:
    """List the lines that keep the module's own forward under a name."""
    for one in function.statements():
        match one:
            case ast.Assign(targets=[ast.Name()], value=value) if ast.unparse(value) == f"{owner}.forward":
                yield one


def _uses(node: ast.AST, texts: set[str]) -> Iterator[ast.expr]:
    """List the parts that are written so, and are no part of such a one."""
    if isinstance(node, ast.expr) and ast.unparse(node) in texts:
        yield node
        return
    for one in ast.iter_child_nodes(node):
        yield from _uses(one, texts)


def _names(node: ast.AST, aside: list[ast.expr]) -> Iterator[ast.Name]:
    """List the names in a part that stand in none of these."""
    if node in aside:
        return
    if isinstance(node, ast.Name):
        yield node
    for one in ast.iter_child_nodes(node):
        yield from _names(one, aside)

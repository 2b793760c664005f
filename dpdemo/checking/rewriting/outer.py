"""Tensors that no module holds, in the user's lines: of the file, of a default, of a class of autograd."""

import ast
import sys
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Evidence, Raised
from dpdemo.checking.looking import device_at
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.source import FUNCTIONS, Function, class_at, function_at, tree_of
from dpdemo.models.frames import is_installed
from dpdemo.reports.check import Change, Place


def moved_to_the_replica(error: Raised, call: Call | None, evidence: Evidence) -> tuple[Change, ...]:
    """Write the line that uses a tensor of the file, or a default, with it moved to the replica's GPU.

    () where the line that failed, and those that led there, use nothing of the kind.
    """
    for place in reversed(error.places):
        function = function_at(place)
        if function is None or is_installed(function.file):
            continue
        edits = Edits(function.file)
        device = device_at(place, evidence)
        given = {name for name, _ in call.argument_structures} if call else set()
        statements = _leading_to(place, function)
        read = {one.id for statement in statements for one in _loads(statement)}
        defaults = [name for name in _defaults(function) if name in read and name not in given]
        if defaults and function_at(evidence.scan.forward) == function:
            edits.first_in(function, "\n".join(f"{name} = {name}.to({device})" for name in defaults))
            return edits.changes()
        texts = {ast.unparse(one) for statement in statements for one in _of_the_file(statement, function)}
        for statement in function.statements():
            for one in _of_the_file(statement, function) if texts else ():
                if ast.unparse(one) in texts:
                    edits.replace(one, f"{function.text(one)}.to({device})")
        if texts:
            return edits.changes()
    return ()


def _loads(node: ast.AST) -> Iterator[ast.Name]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))


def _leading_to(place: Place, function: Function) -> list[ast.stmt]:
    """List the statement at a line, and those that give a value to the names that it reads."""
    around = [one for one in function.statements() if one.lineno <= place.line <= (one.end_lineno or 0)]
    here = max(around, key=lambda one: one.lineno, default=None)
    names = {one.id for one in _loads(here)} if here is not None else set()
    made = [
        one
        for one in function.statements()
        if isinstance(one, ast.Assign)
        and one is not here
        and any(isinstance(target, ast.Name) and target.id in names for target in one.targets)
    ]
    return [*([here] if here is not None else []), *made]


def _defaults(function: Function) -> list[str]:
    """Name the arguments whose default may be a tensor."""
    given = function.node.args
    positional = [*given.posonlyargs, *given.args]
    pairs = [*zip(reversed(positional), reversed(given.defaults), strict=False)]
    pairs += [(one, code) for one, code in zip(given.kwonlyargs, given.kw_defaults, strict=True) if code]
    return [one.arg for one, code in pairs if not isinstance(code, ast.Constant)]


def _of_the_file(statement: ast.stmt, function: Function) -> Iterator[ast.expr]:
    """List what a statement reads of the file around the function, and does not call."""
    yield from _cached_calls(statement, function)
    known = _known_to(function)
    parents = {id(part): one for one in ast.walk(statement) for part in ast.iter_child_nodes(one)}
    for name in _loads(statement):
        if name.id in known or name.id not in _stored_around(function):
            continue
        node: ast.expr = name
        while True:
            outer = parents.get(id(node))
            is_part = isinstance(outer, (ast.Attribute, ast.Subscript)) and outer.value is node
            if not is_part:
                break
            assert isinstance(outer, ast.expr)  # noqa: S101 - so it is
            if isinstance(parents.get(id(outer)), ast.Call) and parents[id(outer)].func is outer:  # type: ignore[attr-defined]
                break  # a method of it
            node = outer
        above = parents.get(id(node))
        if not (isinstance(above, ast.Call) and above.func is node):
            is_moved = isinstance(above, ast.Attribute) and above.attr in (
                "to",
                "shape",
                "size",
                "device",
                "dtype",
            )
            if not is_moved and not _is_filled(node, function):
                yield node


def _cached_calls(statement: ast.stmt, function: Function) -> Iterator[ast.expr]:
    """List the calls of functions that keep what they gave another replica: `@lru_cache` and its like."""
    cached = {
        one.name
        for one in ast.walk(tree_of(function.file))
        if isinstance(one, FUNCTIONS) and any("cache" in ast.unparse(part) for part in one.decorator_list)
    }
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in cached:
            yield node


def _is_filled(node: ast.expr, function: Function) -> bool:
    """Whether it is a container of the file that starts empty, or an element that is written."""
    if isinstance(node, (ast.Subscript, ast.Attribute)):
        return not isinstance(node.ctx, ast.Load)
    name, body = ast.unparse(node), tree_of(function.file).body
    given = (one for one in body if isinstance(one, ast.Assign))
    return any(ast.unparse(one.targets[0]) == name and _is_empty(one.value) for one in given)


def _known_to(function: Function) -> set[str]:
    """List the names that a function gives a value itself."""
    found = function.arguments()
    for one in ast.walk(function.node):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            found.add(one.id)
    return found


def _stored_around(function: Function) -> set[str]:
    """List the names that a file gives a value outside of the function, but for numbers and texts."""
    found: set[str] = set()
    for one in ast.walk(tree_of(function.file)):
        if isinstance(one, ast.Assign) and not _is_plain(one.value):
            found |= {target.id for target in one.targets if isinstance(target, ast.Name)}
        elif isinstance(one, ast.ImportFrom) and (one.module or "").partition(".")[0] not in _LIBRARIES:
            found |= {part.asname or part.name for part in one.names}
    return found


def _is_plain(value: ast.expr) -> bool:
    """Whether it is written out: a number, a text, or a list of them; no tensor, nor what is filled later."""
    if _is_empty(value):
        return False
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True


def _is_empty(value: ast.expr) -> bool:
    return ast.unparse(value) in ("{}", "[]", "dict()", "list()")


_LIBRARIES = {"torch", "torchvision", "numpy", *sys.stdlib_module_names}


def kept_on_the_context(place: Place | None) -> tuple[Change, ...]:
    """Write what a class of autograd keeps on itself for backward as kept on the context of each call."""
    if place is None:
        return ()
    name = class_at(place)
    classes = [
        one
        for one in ast.walk(tree_of(place.file))
        if isinstance(one, ast.ClassDef) and one.name == name and one.lineno <= place.line
    ]
    methods = [one for one in (classes[-1].body if classes else []) if isinstance(one, FUNCTIONS)]
    kept = {
        node.attr
        for method in methods
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) == name
    }
    edits = Edits(place.file)
    for method in methods:
        given = [one.arg for one in method.args.args]
        for node in ast.walk(method):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in kept
                and ast.unparse(node.value) == name
                and given
            ):
                edits.replace(node.value, given[0])
    return edits.changes()

"""What a user's hook does, as far as it is written: whether it keeps anything, and each GPU's apart."""

import ast
import builtins
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dpdemo.checking.evidence import Call, Evidence
from dpdemo.checking.looking import device_at, failures
from dpdemo.checking.rewriting.calling import around_call
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.forwards import of_model
from dpdemo.checking.source import FUNCTIONS, Function, attribute_of, function_at, names_in, tree_of
from dpdemo.checking.writes import changes_in_place
from dpdemo.reports.check import Change, Place

_LIBRARIES = frozenset(["torch", "F", "nn", "functional", "math", *dir(builtins)]) - {
    *("setattr", "delattr", "vars", "globals", "exec", "eval", "open")
}
"""Roots of calls that keep nothing of what they are given."""


def kept_by_gpu(
    hook: Place | None, evidence: Evidence, call: Call | None = None, path: str = ""
) -> tuple[Change, ...]:
    """Write a hook's line that keeps an output, and those that read it, with the GPU in the key.

    Args:
        hook: where the hook is.
        evidence: what the check saw.
        call: a call, behind which the outputs of all GPUs are joined, if no method of the class reads them.
        path: where the model has the container, if it does.

    Returns:
        () where the hook keeps nothing that can be told apart.

    """
    function = _function_of(hook)
    given = [one.arg for one in function.node.args.args] if function else []
    if function is None or not given:
        return _updated_by_gpu(hook)
    for statement in function.statements():
        match statement:
            case ast.Assign(targets=[ast.Subscript(slice=key) as target], value=value):
                if names_in(value) & {given[-1]} and not _is_by_gpu(key):
                    return _entry_by_gpu(function, target, value, evidence, call, path)
            case ast.Assign(targets=[ast.Attribute(value=ast.Name()) as target], value=value):
                if names_in(value) & {given[-1]}:
                    gpu = f"{_tensor_of(given[-1], value)}.device"
                    return _attribute_by_gpu(function, target, gpu, evidence)
    return ()


def keys_read_in_vain(evidence: Evidence) -> set[Place]:
    """List the lines through which a replica failed over what a hook keeps: it has none of it."""
    changed = (
        one.place for held in evidence.scan.of_kind("hook") for one in kept_by_gpu(held.place, evidence)
    )
    lines = {(place.file, place.line) for place in changed if place is not None}
    return {
        one
        for _, error in failures(evidence)
        if any((place.file, place.line) in lines for place in error.places)
        for one in error.places
    }


def _entry_by_gpu(  # noqa: PLR0913, PLR0917 - as `kept_by_gpu`
    hook: Function,
    target: ast.Subscript,
    value: ast.expr,
    evidence: Evidence,
    call: Call | None,
    path: str,
) -> tuple[Change, ...]:
    """Write an entry of a dict that a hook sets with the GPU in its key, and whatever reads it."""
    given, kept = [one.arg for one in hook.node.args.args], ast.unparse(target.value)
    edits = Edits(hook.file)
    edits.replace(target.slice, f"{hook.text(target.slice)}, {_tensor_of(given[-1], value)}.device")
    others = [one for one in _methods_around(hook) if one.node is not hook.node]
    reads = [(method, one) for method in others for one in _elements(method, kept)]
    for method, one in reads or list(_read_elsewhere(hook, target.value)):
        at = device_at(Place(method.file, method.node.lineno), evidence)
        edits.replace(one.slice, f"{method.text(one.slice)}, {at}")
    for reset in _resets(hook, kept):
        edits.replace(reset, "pass   # each GPU writes its entries anew")
    if reads or any(_read_elsewhere(hook, target.value)):
        return edits.changes()
    if call is not None and not isinstance(target.slice, ast.Tuple) and _root(target.value) not in given:
        on_model = attribute_of(path, "model.module") if path else of_model(kept, "self")
        return (*edits.changes(), _joined(call, on_model))
    told = f'   # outside: {kept}[{ast.unparse(target.slice)}, torch.device("cuda", 0)] and so on'
    return _told(edits.changes(), told)


def _tensor_of(name: str, value: ast.expr) -> str:
    """Write the tensor that a hook keeps: its last argument, or one of them where that is a tuple."""
    parts = [ast.unparse(one) for one in ast.walk(value) if isinstance(one, ast.Subscript)]
    return next((one for one in parts if re.fullmatch(rf"{name}\[\d+\]", one)), name)


def _told(changes: tuple[Change, ...], comment: str) -> tuple[Change, ...]:
    first, *others = changes
    return (replace(first, after=f"{first.after}{comment}"), *others)


def _attribute_by_gpu(
    hook: Function, target: ast.Attribute, gpu: str, evidence: Evidence
) -> tuple[Change, ...]:
    """Write an attribute that a hook sets as a dict by GPU; () where other methods set it too."""
    edits = Edits(hook.file)
    edits.replace(target, f"{hook.text(target)}[{gpu}]")
    made = 0
    for method in _methods_around(hook):
        at = device_at(Place(method.file, method.node.lineno), evidence)
        for statement in method.statements():
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == ast.unparse(target):
                if method.node is hook.node:
                    continue
                if method.node.name == "__init__":
                    edits.replace(statement.value, "{}")
                    made += 1
                elif isinstance(statement.value, ast.Constant):
                    edits.replace(statement, f"{ast.unparse(target)}.pop({at}, None)")
                else:
                    return ()
        for one in ast.walk(method.node):
            is_read = isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load)
            if is_read and method.node is not hook.node and ast.unparse(one) == ast.unparse(target):
                edits.replace(one, f"{method.text(one)}[{at}]")
    return edits.changes() if made else ()


def _updated_by_gpu(hook: Place | None) -> tuple[Change, ...]:
    """Write a lambda that updates a dict by name, and the same with the GPU in the key."""
    given, parts = _what_runs(hook)
    match parts:
        case [
            ast.Call(
                func=ast.Attribute(attr="update"), args=[], keywords=[ast.keyword(arg=str(name)) as one]
            ) as call
        ]:
            if hook is not None and names_in(one.value) & {given[-1]}:
                edits = Edits(hook.file)
                edits.replace(
                    call,
                    f'{ast.unparse(call.func)}({{("{name}", {given[-1]}.device): {ast.unparse(one.value)}}})',
                )
                return edits.changes()
    return ()


def _methods_around(function: Function) -> Iterator[Function]:
    """List the methods of the class that a function stands in, be it in one of them."""
    classes = [
        one
        for one in ast.walk(tree_of(function.file))
        if isinstance(one, ast.ClassDef) and one.lineno <= function.node.lineno <= (one.end_lineno or 0)
    ]
    for one in classes[-1].body if classes else ():
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield Function(function.file, one)


def _resets(hook: Function, kept: str) -> Iterator[ast.stmt]:
    """List where other methods but `__init__` put an empty dict in the place of what a hook fills.

    A replica would put it on itself, and the hook goes on to fill the original's.
    """
    for method in _methods_around(hook):
        for one in method.statements() if method.node.name != "__init__" else ():
            match one:
                case ast.Assign(targets=[ast.Attribute() as target], value=ast.Dict(keys=[])):
                    if ast.unparse(target) == kept:
                        yield one


def _elements(method: Function, kept: str) -> Iterator[ast.Subscript]:
    """List where a method reads an element of a dict."""
    for one in ast.walk(method.node):
        if (
            isinstance(one, ast.Subscript)
            and isinstance(one.ctx, ast.Load)
            and ast.unparse(one.value) == kept
        ):
            yield one


def _joined(call: Call, kept: str) -> Change:
    """Write the call with the lines behind it that join what a hook has kept of each GPU."""
    parts = "[parts[key] for key in sorted(parts, key=lambda key: key[1].index or 0) if key[0] == name]"
    lines = [
        f"parts = {{key: {kept}.pop(key) for key in list({kept}) if isinstance(key, tuple)}}",
        "for name in dict.fromkeys(name for name, _ in parts):",
        f"    {kept}[name] = nn.parallel.gather({parts}, model.output_device)",
    ]
    return around_call(call, "result", then=lines)


def is_harmless(hook: Place | None) -> bool:
    """Whether all of a hook can be read, and it keeps nothing, or each GPU's in an entry of its own.

    What it writes to the module that it is given, a replica, goes with that.
    """
    given, parts = _what_runs(hook)
    passing = set(given[-2 if len(given) > 2 else -1 :])  # what went in and came out; no module
    names = given[1:] if given[:1] == ["self"] else given
    return bool(parts) and _is_readable(parts, passing, set(names[:1]), _methods_beside(hook))


def _methods_beside(hook: Place | None) -> dict[str, Function]:
    """List the methods of the class that a hook is one of, by how they are called there."""
    function = _function_of(hook)
    if function is None or function.arguments() & {"self"} == set():
        return {}
    return {f"self.{one.node.name}": one for one in _methods_around(function)}


def _is_readable(
    parts: Sequence[ast.AST], passing: set[str], modules: set[str], methods: dict[str, Function]
) -> bool:
    """Whether code keeps nothing, nor do the methods that it calls of its object."""
    known = {*passing, *_LIBRARIES, *(name for part in parts for name in _stored_in(part))}
    every = [one for part in parts for one in ast.walk(part)]
    for one in every:
        inner = methods.get(ast.unparse(one.func)) if isinstance(one, ast.Call) else None
        others = {name: method for name, method in methods.items() if method is not inner}
        if inner is not None and _is_readable(inner.node.body, set(), inner.arguments() - {"self"}, others):
            continue
        if not _is_written_to(one, modules) and not _keeps_nothing(one, known, passing):
            return False
    return True


def _is_written_to(node: ast.AST, modules: set[str]) -> bool:
    """Whether it sets an attribute of a module that a hook is given, or asks one of it."""
    match node:
        case ast.Attribute(value=ast.Name(name), ctx=ast.Store() | ast.Del()):
            return name in modules
        case ast.Call(func=ast.Name("setattr" | "delattr"), args=[ast.Name(name), *_]):
            return name in modules
    return False


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
        case ast.Subscript(slice=key, ctx=ast.Store() | ast.Del()):
            return _is_by_gpu(key)
        case ast.Call(func=ast.Attribute(attr="update"), args=[ast.Dict(keys=keys)], keywords=[]):
            return all(key is not None and _is_by_gpu(key) for key in keys)
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if changes_in_place(name):
            is_of_its_chunk = name.endswith("_") and _root(value) in passing  # output.requires_grad_()
            return is_of_its_chunk or (isinstance(value, ast.Subscript) and _is_by_gpu(value.slice))
        case ast.Call(func=called):
            return _root(called) in known
    return True


def _is_by_gpu(value: ast.expr) -> bool:
    """Whether a key, or an element of a container, has the GPU in its name."""
    return re.search(r"\.(device|get_device\(\))", ast.unparse(value)) is not None


def _read_elsewhere(hook: Function, kept: ast.expr) -> Iterator[tuple[Function, ast.Subscript]]:
    """List where methods of other classes of the file read an element of what a hook's object keeps."""
    if not isinstance(kept, ast.Attribute):
        return
    aside = [one.node for one in _methods_around(hook)]
    for node in ast.walk(tree_of(hook.file)):
        if not isinstance(node, FUNCTIONS) or any(node in ast.walk(one) for one in aside):
            continue
        for one in ast.walk(node):
            match one:
                case ast.Subscript(value=ast.Attribute(attr=name), ctx=ast.Load()) if name == kept.attr:
                    yield Function(hook.file, node), one


def _root(value: ast.expr) -> str:
    """Name what an attribute or an element belongs to in the end; "" where that is no name."""
    while isinstance(value, (ast.Attribute, ast.Subscript, ast.Call)):
        value = value.func if isinstance(value, ast.Call) else value.value
    return value.id if isinstance(value, ast.Name) else ""


def _stored_in(part: ast.AST) -> Iterator[str]:
    for one in ast.walk(part):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            yield one.id

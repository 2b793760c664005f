"""How what a user's hook keeps is written, so that each GPU's is kept apart."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from dpdemo.checking.evidence import Call, Evidence
from dpdemo.checking.looking import device_at, failures
from dpdemo.checking.rewriting.calling import around_call
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.forwards import of_model
from dpdemo.checking.rewriting.harmless import function_of, is_by_gpu, methods_around, root_of, what_runs
from dpdemo.checking.rewriting.keptin import kept_in
from dpdemo.checking.source import FUNCTIONS, Function, attribute_of, names_in, tree_of
from dpdemo.reports.check import Change, Place


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
    function = function_of(hook)
    given = [one.arg for one in function.node.args.args] if function else []
    if function is None or not given:
        return _updated_by_gpu(hook)
    for statement in function.statements():
        match statement:
            case ast.Assign(targets=[ast.Subscript(slice=key) as target], value=value):
                if names_in(value) & {given[-1]} and not is_by_gpu(key):
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
    given, (kept, home) = [one.arg for one in hook.node.args.args], kept_in(hook, target.value)
    if nested := _dict_by_gpu(hook, home, target, kept, f"{_tensor_of(given[-1], value)}.device", evidence):
        return nested
    edits = Edits(hook.file)
    edits.replace(target.slice, f"{hook.text(target.slice)}, {_tensor_of(given[-1], value)}.device")
    others = [one for one in methods_around(home) if one.node is not hook.node]
    reads = [(method, one) for method in others for one in _elements(method, kept)]
    elsewhere = list(_read_elsewhere(hook, ast.parse(kept, mode="eval").body))
    for method, one in reads or elsewhere:
        at = device_at(Place(method.file, method.node.lineno), evidence)
        edits.replace(one.slice, f"{method.text(one.slice)}, {at}")
    for reset in _resets(home, kept):
        edits.replace(reset, "pass   # each GPU writes its entries anew")
    if reads or elsewhere:
        return edits.changes()
    if call is not None and not isinstance(target.slice, ast.Tuple) and root_of(target.value) not in given:
        on_model = attribute_of(path, "model.module") if path else of_model(kept, "self")
        return (*edits.changes(), _joined(call, on_model))
    told = f'   # outside: {kept}[{ast.unparse(target.slice)}, torch.device("cuda", 0)] and so on'
    return _told(edits.changes(), told)


def attribute_filled(hook: Place | None) -> str:
    """Write the attribute whose elements a hook sets, by whatever name it knows it; "" where it sets none."""
    function = function_of(hook)
    for statement in function.statements() if function is not None else ():
        match statement:
            case ast.Assign(targets=[ast.Subscript(value=kept)]) if function is not None:
                return kept_in(function, kept)[0]
    return ""


def _dict_by_gpu(  # noqa: PLR0913, PLR0917 - as `_entry_by_gpu`
    hook: Function, home: Function, target: ast.Subscript, kept: str, gpu: str, evidence: Evidence
) -> tuple[Change, ...]:
    """Write a dict that a hook fills as one with a dict for each GPU; () where only elements are read."""
    edits, is_whole = Edits(hook.file), False
    edits.replace(target.value, f"{hook.text(target.value)}.setdefault({gpu}, {{}})")
    for method in methods_around(home):
        if method.node.name == "__init__" or method.node is hook.node or hook.node in ast.walk(method.node):
            continue
        at = device_at(Place(method.file, method.node.lineno), evidence)
        inside = {id(one.value): one for one in ast.walk(method.node) if hasattr(one, "value")}
        for one in ast.walk(method.node):
            if not isinstance(one, ast.Attribute) or ast.unparse(one) != kept:
                continue
            if not isinstance(one.ctx, ast.Load):
                return ()
            around = inside.get(id(one))
            is_element = isinstance(around, ast.Subscript)
            is_emptied = isinstance(around, ast.Attribute) and around.attr in ("clear", "update")
            is_whole = is_whole or not (is_element or is_emptied)
            edits.replace(one, f"{kept}.setdefault({at}, {{}})" if is_emptied else f"{kept}[{at}]")
    return edits.changes() if is_whole else ()


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
    for method in methods_around(hook):
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
    given, parts = what_runs(hook)
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


def _resets(hook: Function, kept: str) -> Iterator[ast.stmt]:
    """List where other methods but `__init__` empty what a hook fills, or put an empty dict in its place.

    A replica would put it on itself, and the hook goes on to fill the original's; or it would take away what
    another one has there.
    """
    for method in methods_around(hook):
        for one in method.statements() if method.node.name != "__init__" else ():
            match one:
                case ast.Assign(targets=[ast.Attribute() as target], value=ast.Dict(keys=[])) | ast.Expr(
                    ast.Call(func=ast.Attribute(value=target, attr="clear"))
                ) if ast.unparse(target) == kept:
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


def _read_elsewhere(hook: Function, kept: ast.expr) -> Iterator[tuple[Function, ast.Subscript]]:
    """List where methods of other classes of the file read an element of what a hook's object keeps."""
    if not isinstance(kept, ast.Attribute):
        return
    aside = [one.node for one in methods_around(hook)]
    for node in ast.walk(tree_of(hook.file)):
        if not isinstance(node, FUNCTIONS) or any(node in ast.walk(one) for one in aside):
            continue
        for one in ast.walk(node):
            match one:
                case ast.Subscript(value=ast.Attribute(attr=name), ctx=ast.Load()) if name == kept.attr:
                    yield Function(hook.file, node), one

"""Statements that write to a parameter's numbers, taken out of forward and written around the call."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from dpdemo.checking.evidence import Call, Evidence, StateChange
from dpdemo.checking.methods import methods_in
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.averages import layers_written
from dpdemo.checking.rewriting.forwards import (
    Forward,
    forward_of,
    read_method,
)
from dpdemo.checking.rewriting.moving import calling, moved_out
from dpdemo.checking.rewriting.returning import after_call, names_of
from dpdemo.checking.rewriting.taking import taken_out
from dpdemo.checking.source import Function, attribute_of
from dpdemo.reports.check import Place


def numbers_outside(
    change: StateChange, evidence: Evidence, call: Call | None, others: Sequence[StateChange]
) -> Repair | None:
    """Write forward without what writes to a parameter's numbers by another name, and that after the call."""
    forward = forward_of(evidence, call)
    if forward is None:
        return None
    found = _writing_numbers(forward)
    if not found:
        found = list(_calls_writing_numbers(forward, change, evidence))
        forward = _quiet(forward, found)
    return _about_layers(forward, found, is_guarded=False) or _of_a_part(change, evidence, call, others)


def line_outside(place: Place | None, evidence: Evidence, call: Call | None) -> Repair | None:
    """Write forward's statement around a line as it is written after the call, if forward can do without."""
    forward = forward_of(evidence, call)
    if forward is None or place is None:
        return None
    found = [one for one in forward.body if one.lineno <= place.line <= (one.end_lineno or 0)]
    return _about_layers(forward, found or calling(forward.function, [place.function]), is_guarded=True)


def _about_layers(forward: Forward, found: Sequence[ast.stmt], *, is_guarded: bool) -> Repair | None:
    """Write forward without statements that change parameters, which their layers read."""
    layers = layers_written(forward, found)
    own = taken_out(forward, found, layers, [""], names_of(forward), is_guarded=is_guarded)
    return own or after_call(forward, found, layers, is_guarded=is_guarded)


def _quiet(forward: Forward, calls: Iterable[ast.stmt]) -> Forward:
    """Take calls that change parameters for none of a layer, though they name one."""
    return replace(forward, quiet=frozenset(ast.unparse(one.value.func) for one in calls))  # type: ignore[attr-defined] # calls


def _of_a_part(
    change: StateChange, evidence: Evidence, call: Call | None, others: Sequence[StateChange]
) -> Repair | None:
    """Write the forward of a module around a parameter without what changes the parameter's numbers."""
    kinds = dict(evidence.scan.module_types)
    files = {name.rpartition(".")[2]: file for name, file in evidence.scan.classes if file}
    for dot in reversed(list(re.finditer(r"\.", change.path))):
        owner, inner = change.path[: dot.start()], change.path[dot.start() :]
        kind = kinds.get(owner, "")
        methods = methods_in(files[kind], kind, 0) if kind in files else {}
        forward = read_method(evidence, call, methods.get("forward"), owner)
        if forward is None:
            continue
        writing = {name for name, one in methods.items() if name != "forward" and _writes_numbers(one)}
        found = _writing_numbers(forward)
        if not found:
            found = calling(forward.function, writing)
            forward = _quiet(forward, found)
        paths = [one.path for one in (change, *others) if one.path.endswith(inner)]
        owners = sorted({path.removesuffix(inner) for path in paths} & {*kinds})
        owners = [one for one in owners if kinds[one] == kind]
        steps = [one.start() for one in re.finditer(r"\.", f"{inner}.")]
        attributes = {attribute_of(inner[1:step], forward.me) for step in steps[1:]}  # a layer reads them too
        if found:
            return moved_out(forward, None, found, attributes, owners, methods, is_guarded=False)
    return None


def _writing_numbers(forward: Forward) -> list[ast.stmt]:
    """List forward's statements that write to a parameter's numbers by another name: a loop's, say."""
    lines = (one for one in forward.function.statements() if isinstance(one, ast.Expr))
    return [one for one in lines if re.search(r"\.data(\[.*\])?\.[a-z]\w*_\(", forward.text(one))]


def _calls_writing_numbers(forward: Forward, change: StateChange, evidence: Evidence) -> Iterator[ast.stmt]:
    """List forward's calls of a method that changes weights in place, of a module around the parameter."""
    kinds = dict(evidence.scan.module_types)
    files = {name.rpartition(".")[2]: file for name, file in evidence.scan.classes if file}
    for statement in forward.function.statements():
        match statement:
            case ast.Expr(ast.Call(func=ast.Attribute(value=value, attr=name))):
                path = ast.unparse(value).removeprefix(forward.me).removeprefix(".")
                kind = kinds.get(path, "")
                is_around = not path or change.path.startswith(f"{path}.")
                methods = methods_in(files[kind], kind, 0) if kind in files and is_around else {}
                if name in methods and _writes_numbers(methods[name]):
                    yield statement


def _writes_numbers(function: Function) -> bool:
    """Whether a method changes weights in place, without gradients."""
    text = ast.unparse(function.node)  # with its decorators
    return re.search(r"no_grad|\.data\b", text) is not None and re.search(_IN_PLACE, text) is not None


_IN_PLACE = re.compile(
    r"\.(weight|bias|data)(\[.*\])?\.[a-z]\w*_\(|\.data = "
    r"|\b(?P<name>\w+) = [^\n]*\.(weight|bias|data)\n.*\b(?P=name)(\[[^\n]*\])?\.[a-z]\w*_\(",
    re.DOTALL,
)
"""Code that changes weights where they are, by a name that they were given too."""

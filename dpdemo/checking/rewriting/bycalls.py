"""State that forward changes through calls: of a helper, of a module's method, of an object that it holds."""

import ast
import itertools
from collections.abc import Iterator
from dataclasses import replace

from dpdemo.checking.evidence import Call, Evidence, StateChange
from dpdemo.checking.methods import functions_like, methods_in
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.forwards import Forward, forward_of
from dpdemo.checking.rewriting.outside import end_outside
from dpdemo.checking.rewriting.returning import after_call, names_of
from dpdemo.checking.rewriting.taking import reads_around, taken_out
from dpdemo.checking.source import Function, attribute_of
from dpdemo.checking.writes import changes_in_place, writes_to


def call_outside(change: StateChange, evidence: Evidence, call: Call | None) -> Repair | None:
    """Write forward without the calls that change state, and the program's line with them behind it.

    Returns:
        None where forward has no such call, or goes on with layers that need what it gives.

    """
    forward = forward_of(evidence, call)
    if forward is None:
        return None
    writing = set(_writing_calls(forward, change, evidence))
    writing |= {f"{forward.me}.{name}" for name in _leading_to(writing, _own_methods(forward, evidence))}
    tops = [one for one in forward.body if any(ast.unparse(part.func) in writing for part in _calls(one))]
    if not tops:
        return None
    attributes = {attribute_of(path, forward.me) for path in _prefixes(change.path)}
    bare = [
        one
        for top in tops
        for one in ast.walk(top)
        if isinstance(one, ast.Expr) and any(ast.unparse(part.func) in writing for part in _calls(one))
    ]
    calls = [part for top in tops for part in _calls(top) if ast.unparse(part.func) in writing]
    is_made = change.before in ("None", "absent")
    if bare and is_made and reads_around(forward, bare, attributes)[1]:
        return None  # forward would find nothing there
    if bare and len(bare) == len(calls):
        is_guarded = change.kind not in ("buffer", "parameter")
        holders = {path.partition(".")[0] for path in _prefixes(change.path)}  # they keep, and run nothing
        keeping = replace(forward, layers=forward.layers - holders)
        layers = [index for index, one in enumerate(forward.body) if keeping.runs_layer(one)]
        is_first = change.kind == "attribute" and bool(layers) and forward.body.index(tops[-1]) < layers[0]
        own = (
            taken_out(keeping, bare, attributes, [""], names_of(forward), is_first=True) if is_first else None
        )
        own = own or after_call(keeping, bare, attributes, is_guarded=is_guarded)
        if own is not None:
            return own
    return end_outside(forward, tops[0])


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Call))


def _prefixes(path: str) -> list[str]:
    """List a path and what stands around it: `memory.state` and `memory`."""
    return [path, *itertools.accumulate(path.split(".")[:-1], "{}.{}".format)]


def _writing_calls(forward: Forward, change: StateChange, evidence: Evidence) -> Iterator[str]:
    """List the methods, as forward calls them, that write to a piece of state."""
    kinds = dict(evidence.scan.module_types)
    files = {name.rpartition(".")[2]: file for name, file in evidence.scan.classes if file}
    for holder in ("", *_prefixes(change.path)):
        inner = change.path.removeprefix(holder).removeprefix(".") if holder else change.path
        me = attribute_of(holder, forward.me) if holder else forward.me
        if not holder:
            methods = _own_methods(forward, evidence)
        elif kinds.get(holder) in files:
            methods = methods_in(files[kinds[holder]], kinds[holder], 0)
        elif holder not in kinds:  # an object, of whose methods any may write; no list
            yield from (
                ast.unparse(one.func)
                for one in _calls(forward.function.node)
                if isinstance(one.func, ast.Attribute)
                and _is_part(ast.unparse(one.func.value), me)
                and not changes_in_place(one.func.attr)
            )
            continue
        else:
            continue
        yield from (f"{me}.{name}" for name in _writers(methods, inner))


def _own_methods(forward: Forward, evidence: Evidence) -> dict[str, Function]:
    """Find the methods of the model: of the class that defines its forward, and of its own."""
    kind, file = evidence.scan.model, forward.function.file
    own = methods_in(file, kind, 0) if (kind, file) in evidence.scan.classes else {}
    return {one.node.name: one for one in functions_like(forward.function)} | own


def _leading_to(writing: set[str], methods: dict[str, Function]) -> set[str]:
    """List the methods that make such calls, of their own object's or of its parts'."""
    return {
        name
        for name, one in methods.items()
        if name not in ("__init__", "forward")
        and any(ast.unparse(part.func) in writing for part in _calls(one.node))
    }


def _is_part(text: str, me: str) -> bool:
    """Whether it is an object, or something in it."""
    return text == me or text.startswith(f"{me}.")


def _writers(methods: dict[str, Function], path: str) -> set[str]:
    """List the methods that write to what is at a path of their object, or call one that does."""
    others = {name: one for name, one in methods.items() if name not in ("__init__", "forward")}
    found = {name for name, one in others.items() if path and writes_to(one, path)}
    while True:
        more = {name for name, one in others.items() if _called_by(one) & found} - found
        if not more:
            return found
        found |= more


def _called_by(function: Function) -> set[str]:
    """List the methods that a method calls of its own object."""
    me = function.node.args.args[0].arg if function.node.args.args else ""
    return {
        one.func.attr
        for one in _calls(function.node)
        if isinstance(one.func, ast.Attribute) and ast.unparse(one.func.value) == me
    }

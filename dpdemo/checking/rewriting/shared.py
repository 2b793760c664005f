"""What all replicas share and forward writes to, though it is not on `self`: an argument, or a global."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Evidence
from dpdemo.checking.looking import forward_place
from dpdemo.checking.methods import methods_in
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.aftercall import moved_out
from dpdemo.checking.rewriting.forwards import forward_of, read_method
from dpdemo.checking.rewriting.taking import globals_in
from dpdemo.checking.source import Function, tree_of
from dpdemo.checking.writes import changes_in_place, written_in


def argument_outside(name: str, evidence: Evidence, call: Call | None) -> Repair | None:
    """Write forward without what it writes to an argument, and that behind the call."""
    forward = forward_of(evidence, call)
    if forward is None:
        return None
    found = [
        one
        for one in forward.function.statements()
        if any(isinstance(part, ast.Name) and part.id == name for part in written_in(one))
        and not _gives_name(one, name)
    ]
    return moved_out(forward, forward, found, {name}, ("",), {}) if found else None


def _gives_name(statement: ast.stmt, name: str) -> bool:
    """Whether a statement gives the name another value, and does not change the one that it has."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(isinstance(one, ast.Name) and one.id == name for one in targets)


def globals_outside(evidence: Evidence, call: Call | None) -> Repair | None:
    """Write the method that changes a global, or an attribute of its class, without that, and it outside."""
    place = forward_place(evidence)
    kinds = [(path, kind) for path, kind in evidence.scan.module_types if kind]
    if place is None or call is None:
        return None
    for kind in dict.fromkeys(kind for _, kind in kinds):
        owners = tuple(path for path, known in kinds if known == kind)
        methods = methods_in(place.file, kind, place.line)
        forward = methods.get("forward")
        found = list(_of_globals(forward, kind)) if forward else []
        if forward is None or not found:
            continue
        whole = forward_of(evidence, call)
        inner = read_method(evidence, call, forward, owners[0])
        attributes = {text for _, texts in found for text in texts}
        statements = [one for one, _ in found]
        if inner is not None:
            return moved_out(inner, whole, statements, attributes, owners, methods)
    return None


def _of_globals(function: Function, kind: str) -> Iterator[tuple[ast.stmt, list[str]]]:
    """List the statements that write to something outside of the function, and what that is."""
    given = globals_in(function)
    known = {
        name.id
        for one in tree_of(function.file).body
        if isinstance(one, (ast.Assign, ast.AnnAssign))
        for name in ast.walk(one)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }
    locals_ = function.arguments() | {
        one.id
        for part in function.statements()
        for one in ast.walk(part)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }
    known = (known - locals_) | given
    for statement in function.statements():
        if isinstance(statement, (ast.If, ast.For, ast.While, ast.With, ast.Try)):
            continue
        texts = [text for text in map(ast.unparse, written_in(statement)) if _is_one(text, kind, known)]
        is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        if texts and (not is_call or _changes(statement)):
            yield statement, texts


def _is_one(text: str, kind: str, known: set[str]) -> bool:
    owner = rf"({kind}|type\(self\)|self\.__class__)\.\w+"
    return text in known or re.fullmatch(owner, text) is not None


def _changes(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(ast.Call(func=ast.Attribute(attr=name))):
            return changes_in_place(name)
    return False

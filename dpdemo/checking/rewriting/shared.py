"""What all replicas share and forward writes to, though it is not on `self`: an argument, or a global."""

import ast
import itertools
import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Evidence
from dpdemo.checking.looking import forward_place
from dpdemo.checking.methods import methods_in
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.forwards import Forward, forward_of, read_method
from dpdemo.checking.rewriting.moving import moved_out
from dpdemo.checking.rewriting.returning import names_of
from dpdemo.checking.rewriting.taking import globals_in, taken_out
from dpdemo.checking.source import FUNCTIONS, Function, tree_of
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
            names = names_of(whole) if whole is not None and owners == ("",) else "result"
            first = _begins(inner, statements) and taken_out(
                inner, statements, attributes, owners, names, is_first=True
            )
            return first or moved_out(inner, whole, statements, attributes, owners, methods)
    return None


def _begins(forward: Forward, statements: list[ast.stmt]) -> bool:
    """Whether no layer has run before all of the statements: layers may read what they write."""
    before = list(itertools.takewhile(lambda one: not forward.runs_layer(one), forward.body))
    inside = {id(part) for one in before for part in ast.walk(one)}
    return all(id(one) in inside for one in statements)


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
        elif is_call and (called := _written_by_call(statement, function.file)):
            yield statement, called


def _written_by_call(statement: ast.stmt, file: str) -> list[str]:
    """Name what a call of a function of the file writes to: globals; or the class, or object, of a method."""
    top = {one.name: one for one in tree_of(file).body if isinstance(one, (*FUNCTIONS, ast.ClassDef))}
    match statement:
        case ast.Expr(ast.Call(func=ast.Name(name))):
            function = top.get(name)
            if not isinstance(function, FUNCTIONS):
                return []
            helper = Function(file, function)
            return [text for text in _all_written(helper) if text in globals_in(helper)]
        case ast.Expr(ast.Call(func=ast.Attribute(value=ast.Name(owner), attr=name))):
            kind = owner if owner in top else _class_of(owner, file)
            method = methods_in(file, kind, 0).get(name) if kind in top else None
            known = {kind, *(one.arg for one in method.node.args.args[:1])} if method else set()
            return [owner] if method and not known.isdisjoint(_all_written(method)) else []
    return []


def _all_written(function: Function) -> list[str]:
    """List what a function's statements write to."""
    return [ast.unparse(part) for one in function.statements() for part in written_in(one)]


def _class_of(name: str, file: str) -> str:
    """Find the class of which a file makes an object of that name: `CLOCK = Clock()`."""
    for one in tree_of(file).body:
        match one:
            case ast.Assign(targets=[ast.Name(known)], value=ast.Call(func=ast.Name(kind))) if known == name:
                return kind
    return ""


def _is_one(text: str, kind: str, known: set[str]) -> bool:
    owner = rf"({kind}|type\(self\)|self\.__class__)\.\w+"
    return text in known or re.fullmatch(owner, text) is not None


def _changes(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(ast.Call(func=ast.Attribute(attr=name))):
            return changes_in_place(name)
    return False

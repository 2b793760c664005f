"""Containers on `self` that forward fills and empties again: after a call nothing shows that it was used."""

import ast
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Held
from dpdemo.checking.methods import functions_like
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.calling import around_call, result_names
from dpdemo.checking.source import FUNCTIONS, Function, attribute_of, function_at, tree_of

_FILLS = frozenset(["append", "appendleft", "push", "add", "extend", "insert"])
_EMPTIES = frozenset(["pop", "popleft", "clear"])
_EMPTY = {"list": "[]", "set": "set()", "dict": "{}"}


def filled_and_emptied(held: Held) -> Function | None:
    """Find the forward that fills a container on `self` and empties it; None where none does both."""
    home = function_at(held.place)
    methods = {one.node.name: one for one in reversed([*functions_like(home)])} if home else {}
    forward = methods.get("forward")
    if forward is None or any(_makes_anew(one, held, forward) for one in forward.node.body):
        return None
    names = {called.attr for called in _methods_called(forward)}
    used = [forward, *(one for name, one in methods.items() if name in names)]
    done = {called.attr for one in used for called in _methods_called(one) if _is_of(called.value, held, one)}
    is_filled = done & _FILLS or any(_is_filled_by_key(one, held) for one in used)
    return forward if is_filled and done & _EMPTIES else None


def _makes_anew(statement: ast.stmt, held: Held, forward: Function) -> bool:
    """Whether a line of forward gives the replica a container of its own: `self.skips = []`."""
    match statement:
        case ast.Assign(targets=[target], value=ast.List(elts=[]) | ast.Dict(keys=[]) | ast.Call(args=[])):
            return _is_of(target, held, forward)
    return False


def _is_filled_by_key(function: Function, held: Held) -> bool:
    """Whether a function writes an element: `self.kept["low"] = h`."""
    return any(
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and _is_of(node.value, held, function)
        for node in ast.walk(function.node)
    )


def _fills(method: Function, held: Held) -> bool:
    """Whether a method puts something into a container itself, and not a hook, say."""
    called = (one for one in _methods_called(method) if one.attr in {*_FILLS, "update", "setdefault"})
    added = (one.target for one in method.statements() if isinstance(one, ast.AugAssign))
    owners = [*(one.value for one in called), *added]
    return _is_filled_by_key(method, held) or any(_is_of(one, held, method) for one in owners)


def kept_in_a_local(held: Held, forward: Function) -> Repair | None:
    """Write the lines of forward that use a container on `self`, and the same with one of its own."""
    name = held.path.rpartition(".")[2]
    if not _is_forwards_alone(held, forward):
        return None
    body = forward.node.body
    lines = [index for index, one in enumerate(body) if _mentions(one, held, forward)]
    touched = body[lines[0] : lines[-1] + 1]
    rest = touched[_is_emptied(touched[0], held, forward) :]
    after = [f"{name} = {_EMPTY.get(held.detail.partition(' ')[0], '[]')}   # of each call"]
    after += [
        forward.own(one, *((part, name) for part in _mentions(one, held, forward))).after for one in rest
    ]
    return forward.rewritten(touched[0], touched[-1], "\n".join(after))


def emptied_first(held: Held) -> Repair | None:
    """Write a container that a method empties, fills and reads as one of its own.

    Where another forward goes on to read it, the method gives the replica a new one on `self`.
    """
    home = function_at(held.place)
    name = held.path.rpartition(".")[2]
    for method in functions_like(home) if home else ():
        uses = [one for one in method.statements() if _mentions(one, held, method)]
        if not uses or not _is_emptied(uses[0], held, method):
            continue
        if _is_read(uses[-1], held, method):
            return kept_in_a_local(held, method) if _fills(method, held) else None
        if _is_read_by_another_forward(name, method.file):
            new = _EMPTY.get(held.detail.partition(" ")[0], "[]")
            return method.whole(uses[0], f"{attribute_of(name, method.node.args.args[0].arg)} = {new}")
    return None


def _is_read_by_another_forward(name: str, file: str) -> bool:
    """Whether a forward reads it of a part of its model: `self.encoder.skips`."""
    functions = [one for one in ast.walk(tree_of(file)) if isinstance(one, FUNCTIONS)]
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Attribute)
        for function in functions
        if function.name == "forward"
        for node in ast.walk(function)
    )


def _is_read(statement: ast.stmt, held: Held, method: Function) -> bool:
    """Whether a statement does more with a container than to fill it."""
    match statement:
        case ast.AugAssign(target=target):
            return not _is_of(target, held, method)
    filled = {
        id(node.func.value)
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _FILLS
    }
    return any(id(one) not in filled for one in _mentions(statement, held, method))


def _is_emptied(statement: ast.stmt, held: Held, method: Function) -> bool:
    """Whether a statement takes all out of a container, and does nothing else."""
    match statement:
        case ast.Expr(ast.Call(func=ast.Attribute(value=owner, attr="clear"))):
            return _is_of(owner, held, method)
        case ast.Delete(targets=[ast.Subscript(value=owner, slice=ast.Slice(None, None))]):
            return _is_of(owner, held, method)
        case ast.Assign([ast.Subscript(value=owner, slice=ast.Slice(None, None))], ast.List(elts=[])):
            return _is_of(owner, held, method)
    return False


def returned_beside(held: Held, call: Call) -> Repair | None:
    """Write the loop of forward that fills a list on `self`, and one whose list is returned.

    Behind the call its elements are added to the model's list.
    """
    home = function_at(held.place)
    forward = (
        next((one for one in functions_like(home) if one.node.name == "forward"), None) if home else None
    )
    body = forward.node.body if forward else []
    loops = [one for one in body if forward and isinstance(one, ast.For) and _mentions(one, held, forward)]
    if forward is None or len(loops) != 1 or not _is_forwards_alone(held, forward):
        return None
    end, name = body[-1], held.path.rpartition(".")[2]
    touched = body[body.index(loops[0]) :]
    is_list = held.detail.startswith("list of 0") and _are_tensors(loops[0], held, forward)
    if (
        not is_list
        or not isinstance(end, ast.Return)
        or end.value is None
        or isinstance(end.value, ast.Tuple)
    ):
        return None
    if any(_mentions(one, held, forward) for one in body if one is not loops[0]):
        return None
    parts = [(part, name) for part in _mentions(loops[0], held, forward)]
    after = [f"{name} = []   # of each call", forward.own(loops[0], *parts).after]
    after += [forward.own(one).after for one in touched[1:-1]]
    own = forward.rewritten(touched[0], end, "\n".join([*after, f"return {forward.text(end.value)}, {name}"]))
    result = result_names(end.value)
    adds = f"{attribute_of(held.path, 'model.module')}.extend({name})"
    return own._replace(also=(around_call(call, result, given=f"{result}, {name}", then=[adds]),))


def _are_tensors(loop: ast.For, held: Held, forward: Function) -> bool:
    """Whether names alone are appended: no number is made of what has a row for each sample."""
    added = [
        node.args
        for node in ast.walk(loop)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append"
        if _is_of(node.func.value, held, forward)
    ]
    return bool(added) and all(isinstance(one, ast.Name) for given in added for one in given)


def _is_forwards_alone(held: Held, forward: Function) -> bool:
    """Whether no other method but `__init__` has to do with a container, and its name is free in forward."""
    others = [one for one in functions_like(forward) if one.node is not forward.node]
    is_free = held.path.rpartition(".")[2] not in forward.arguments()
    return is_free and not any(_mentions(one.node, held, one) for one in others)


def _methods_called(function: Function) -> Iterator[ast.Attribute]:
    """List the methods that a function calls, of whatever they are."""
    for node in ast.walk(function.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func


def _mentions(node: ast.AST, held: Held, function: Function) -> list[ast.AST]:
    return [one for one in ast.walk(node) if isinstance(one, ast.expr) and _is_of(one, held, function)]


def _is_of(value: ast.expr, held: Held, function: Function) -> bool:
    given = function.node.args.args
    return bool(given) and ast.unparse(value) == attribute_of(held.path.rpartition(".")[2], given[0].arg)

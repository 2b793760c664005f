"""Statements of forward that read nothing but the model, taken out of it: before the call, or behind it."""

import ast
import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from dpdemo.checking.methods import functions_like
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.calling import around_call
from dpdemo.checking.rewriting.forwards import Forward, of_model, stored
from dpdemo.checking.source import Function, attribute_of, names_in

_SHORT = 3
"""So many lines a statement may have that is shown beside one that goes."""


def taken_out(  # noqa: PLR0913 - what is moved, and how it is told
    forward: Forward,
    found: Sequence[ast.stmt],
    attributes: set[str],
    owners: Sequence[str],
    names: str = "result",
    *,
    times: int = 1,
    is_guarded: bool = True,
    is_first: bool = False,
) -> Repair | None:
    """Write forward without statements that read the model only, and the call with them around it.

    Args:
        forward: the method that they stand in.
        found: the statements.
        attributes: what they write to, as `self.steps`.
        owners: the modules that run the method, by their paths.
        names: what the program calls the result.
        times: how often a call of the model runs them.
        is_guarded: whether they need no `torch.no_grad()` of their own.
        is_first: whether they must stand before the call, whatever forward reads.

    Returns:
        None where one reads a value of forward's, or forward reads what they write both before and behind.

    """
    makers = _makers_for(forward, found)
    given = {name for one in makers for name in stored(one)}
    found = sorted([*makers, *found], key=lambda one: one.lineno)
    ways = [way_to(forward.body, one) for one in found]
    if not ways or not all(way and is_alone(forward, way, given) for way in ways):
        return None
    tops = list(dict.fromkeys(_anchor(way, found) for way in ways))
    texts = [_text(forward, way, found) for way in ways]
    early, late = reads_around(forward, tops, attributes)
    if early and late:
        return None
    is_early = bool(late) or is_first
    text = "\n".join(dict.fromkeys(texts))
    text = f"for _ in range({times}):\n{textwrap.indent(text, '    ')}" if times > 1 else text
    lines = for_each(owners, text if is_guarded else without_gradients(text), forward.me)
    first, *more = without(forward.function, tops)
    call = around_call(forward.call, names, first=[lines] * is_early, then=[lines] * (not is_early))
    return first._replace(also=(*(one.as_change() for one in more), call))


def _makers_for(forward: Forward, found: Sequence[ast.stmt]) -> list[ast.stmt]:
    """List what gives names to parts of the model, for these statements alone: `w = self.fc.weight`."""
    makers: list[ast.stmt] = []
    todo = [name for one in found for name in locals_in(forward, one)]
    while todo:
        name = todo.pop()
        made = [one for one in forward.body if name in stored(one)]
        is_one = len(made) == 1 and isinstance(made[0], ast.Assign) and not forward.runs_layer(made[0])
        if not is_one or name in forward.function.arguments() or made[0] in makers:
            continue
        others = [one for one in forward.function.statements() if one not in (*found, *makers, made[0])]
        if any(name in names_in(one) for one in others if not _is_around(one, found)):
            continue
        makers.append(made[0])
        todo += locals_in(forward, made[0])
    return makers


def _is_around(statement: ast.stmt, found: Sequence[ast.stmt]) -> bool:
    """Whether a statement is the block that some stand in."""
    return any(one in ast.walk(statement) for one in found)


def without_gradients(text: str) -> str:
    """Write code that changes parameters as it is allowed outside of forward."""
    if re.search(r"no_grad|\.data\b", text):
        return text
    return f"with torch.no_grad():\n{textwrap.indent(text, '    ')}"


def for_each(owners: Sequence[str], text: str, me: str) -> str:
    """Write code of a module as it stands outside; in a loop where the model has several such modules."""
    if len(owners) == 1:
        (owner,) = owners
        return of_model(text, me, attribute_of(owner, "model.module") if owner else "model.module")
    modules = ", ".join(attribute_of(owner, "model.module") for owner in owners)
    return f"for module in ({modules}):\n{textwrap.indent(of_model(text, me, 'module'), '    ')}"


def with_names(text: str, names: Mapping[str, str]) -> str:
    """Write code with other names for some of its variables."""
    for name, other in names.items():
        text = re.sub(rf"(?<![\w.]){name}\b(?!=[^=])", other, text)
    return text


def way_to(body: Sequence[ast.stmt], statement: ast.stmt) -> list[ast.stmt]:
    """List what stands around a statement, the outermost first, and itself last."""
    for one in body:
        if one is statement:
            return [one]
        for block in _blocks(one):
            if inner := way_to(block, statement):
                return [one, *inner]
    return []


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        if isinstance(block := getattr(statement, name, None), list):
            yield block
    yield from (one.body for one in getattr(statement, "handlers", []))


def locals_in(forward: Forward, node: ast.AST) -> set[str]:
    """List the names of forward's own that a part of it reads: its arguments, and what it gives a value."""
    known = forward.function.arguments() - {forward.me}
    for one in forward.function.node.body:
        known |= stored(one)
    known -= globals_in(forward.function)
    inside = {
        one.id
        for part in ast.walk(node)
        if isinstance(part, ast.comprehension)
        for one in ast.walk(part.target)
        if isinstance(one, ast.Name)
    }
    loads = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    return (loads & known) - inside


def globals_in(function: Function) -> set[str]:
    """List the names that a function says are the file's."""
    return {name for one in function.statements() if isinstance(one, ast.Global) for name in one.names}


def is_alone(forward: Forward, way: Sequence[ast.stmt], known: set[str]) -> bool:
    """Whether a statement, and what stands around it, reads only the model and `known`, and runs no layer."""
    *around, statement = way
    heads = [head for one in around for head in _heads(one)]
    if not all(isinstance(one, (ast.If, ast.For, ast.With)) for one in around):
        return False
    is_simple = isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr))
    given = stored(statement) - globals_in(forward.function) - known
    if not is_simple or given or forward.runs_layer(statement):
        return False
    loops = {one.id for part in around if isinstance(part, ast.For) for one in _names(part.target)}
    return all(locals_in(forward, one) <= loops | known for one in (*heads, statement))


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (one for one in ast.walk(node) if isinstance(one, ast.Name))


def _heads(statement: ast.stmt) -> Iterator[ast.expr]:
    match statement:
        case ast.If(test=test):
            yield test
        case ast.For(iter=values):
            yield values
        case ast.With(items=items):
            yield from (one.context_expr for one in items)


def _anchor(way: Sequence[ast.stmt], found: Sequence[ast.stmt]) -> ast.stmt:
    """Find what has nothing left in it once the statements are gone."""
    for one in way:
        if is_emptied(one, found):
            return one
    return way[-1]


def is_emptied(statement: ast.stmt, found: Sequence[ast.stmt]) -> bool:
    """Whether nothing is left of a statement once those found are gone."""
    inner = [one for block in _blocks(statement) for one in block]
    is_block = isinstance(statement, (ast.If, ast.For, ast.With))
    return statement in found or (is_block and all(is_emptied(one, found) for one in inner))


def _text(forward: Forward, way: Sequence[ast.stmt], found: Sequence[ast.stmt]) -> str:
    """Write a statement with what stands around it; all of that at once where nothing is left in it."""
    top = _anchor(way, found)
    at = way.index(top)
    text = forward.function.own(top).after
    for outer, inner in reversed(list(itertools.pairwise(way[: at + 1]))):
        text = f"{_head(forward, outer, inner)}\n{textwrap.indent(text, '    ')}"
    return text


def _head(forward: Forward, outer: ast.stmt, inner: ast.stmt) -> str:
    heads = ", ".join(forward.text(one) for one in _heads(outer))
    match outer:
        case ast.If(body=body):
            return f"if {heads}:" if inner in body else f"if not ({heads}):"
        case ast.For(target=target):
            return f"for {forward.text(target)} in {heads}:"
    return f"with {heads}:"


def reads_around(
    forward: Forward, moved: Sequence[ast.stmt], attributes: set[str]
) -> tuple[list[int], list[int]]:
    """List the lines that read attributes before statements of a method, and those behind them.

    A call of another method is a line that reads what the method does. What the call of the method itself
    has before and behind it, in the class's forward, counts too.
    """
    inside = {part for one in moved for part in ast.walk(one)}
    early, late = _split(forward, forward.function, moved, inside, attributes)
    home = next((one for one in functions_like(forward.function) if one.node.name == "forward"), None)
    if home is not None and home.node is not forward.function.node:
        name = attribute_of(forward.function.node.name, forward.me)
        calls = [
            one
            for one in home.statements()
            if any(isinstance(part, ast.Call) and ast.unparse(part.func) == name for part in ast.walk(one))
            and not any(True for block in _blocks(one) for _ in block)
        ]
        if calls:
            outer = {part for one in calls for part in ast.walk(one)}
            more = _split(forward, home, calls, outer, attributes)
            early, late = early + more[0], late + more[1]
    return early, late


def _split(
    forward: Forward,
    function: Function,
    moved: Sequence[ast.stmt],
    inside: set[ast.AST],
    attributes: set[str],
) -> tuple[list[int], list[int]]:
    first, last = moved[0].lineno, moved[-1].end_lineno or 0
    lines = [
        node.lineno
        for node in ast.walk(function.node)
        if isinstance(node, ast.expr) and node not in inside and reads(forward, node, attributes)
    ]
    return [one for one in lines if one < first], [one for one in lines if one > last]


def reads(forward: Forward, node: ast.AST, attributes: set[str], depth: int = 0) -> bool:
    """Whether an expression is one of these attributes, read, or a method that reads one of them."""
    if not isinstance(node, (ast.Attribute, ast.Name)) or not isinstance(node.ctx, ast.Load):
        return False
    if ast.unparse(node) in attributes:
        return True
    owner = ast.unparse(node.value) if isinstance(node, ast.Attribute) else ""
    if not isinstance(node, ast.Attribute) or owner not in (forward.me, "super()") or depth > 2:
        return False
    return any(
        reads(forward, part, attributes, depth + 1)
        for one in functions_like(forward.function)
        if one.node.name == node.attr and (owner == forward.me or one.node is not forward.function.node)
        for part in ast.walk(one.node)
    )


def without(function: Function, gone: Sequence[ast.stmt]) -> list[Repair]:
    """Write the lines of a method without statements: each with the one beside it, or `pass` for it."""
    return list(_without(function, function.node.body, gone))


def _without(function: Function, body: list[ast.stmt], gone: Sequence[ast.stmt]) -> Iterator[Repair]:
    at, shown = 0, -1
    while at < len(body):
        if body[at] not in gone:
            for block in _blocks(body[at]):
                yield from _without(function, block, gone)
            at += 1
            continue
        end = at
        while end < len(body) and body[end] in gone:
            end += 1
        if end < len(body) and _is_short(body[end]):
            yield function.rewritten(body[at], body[end], function.own(body[end]).after)
            shown = end
        elif at - 1 > shown and _is_short(body[at - 1]):
            kept = function.own(body[at - 1]).after
            yield function.rewritten(body[at - 1], body[end - 1], kept)
        else:
            yield function.rewritten(body[at], body[end - 1], "pass")
        at = end


def _is_short(statement: ast.stmt) -> bool:
    is_block = any(True for _ in _blocks(statement))
    return not is_block and (statement.end_lineno or 0) - statement.lineno < _SHORT

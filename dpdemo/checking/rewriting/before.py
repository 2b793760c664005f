"""What forward does with the whole batch before its first layer, written before the call."""

import ast

from dpdemo.checking.evidence import Call, Evidence
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.calling import around_call
from dpdemo.checking.rewriting.forwards import Forward, forward_of, leaves, of_model, stored
from dpdemo.checking.rewriting.outside import mixes, outermost
from dpdemo.checking.source import names_in


def before_layers(evidence: Evidence, call: Call | None) -> Repair | None:
    """Write forward's beginning, if it mixes samples of its arguments, as it is written before the call."""
    forward = forward_of(evidence, call)
    body = forward.body if forward is not None else []
    mixing = [index for index, one in enumerate(body) if forward and mixes(forward, one)]
    if forward is None or not mixing:
        return None
    last = body[mixing[-1]]
    if forward.reads_layer(last):
        return _argument_before(forward, body[: mixing[-1]], last)
    moved = body[: mixing[-1] + 1]
    given = forward.function.arguments() - {forward.me}
    if any(forward.reads_layer(one) or leaves(one) or not stored(one) <= given for one in moved):
        return None
    text = "\n".join(of_model(forward.function.own(one).after, forward.me) for one in moved)
    own = forward.function.rewritten(moved[0], body[len(moved)], forward.function.own(body[len(moved)]).after)
    return own._replace(also=(around_call(forward.call, "result", first=[text]),))


def _argument_before(forward: Forward, before: list[ast.stmt], statement: ast.stmt) -> Repair | None:
    """Write a layer's argument that mixes samples as one of forward's own, made before the call."""
    calls = list(outermost(forward, statement))
    if len(calls) != 1 or not isinstance(calls[0], ast.Call) or len(calls[0].args) != 1:
        return None
    argument, given = calls[0].args[0], forward.function.arguments() - {forward.me}
    body = forward.body
    behind = body[body.index(statement) + 1 :]
    outside = {name for one in before for name in stored(one)}
    inside = {id(part) for part in ast.walk(argument)}
    read = {
        part.id
        for one in (statement, *behind)
        for part in ast.walk(one)
        if isinstance(part, ast.Name) and id(part) not in inside
    }
    name = next(
        (one for one in forward.call_names() if one in names_in(argument) and forward.is_tensor(one)), ""
    )
    if not name or not mixes(forward, argument):
        return None
    if any(forward.reads_layer(one) or leaves(one) for one in before) or forward.reads_layer(argument):
        return None
    if read & {*outside, name} or outside & given:
        return None
    lines = [of_model(forward.function.own(one).after, forward.me) for one in before]
    lines.append(f"{name} = {of_model(forward.text(argument), forward.me)}")
    kept = forward.function.own(statement, (argument, name)).after
    own = forward.function.rewritten(before[0] if before else statement, statement, kept)
    return own._replace(also=(around_call(forward.call, "result", first=lines),))

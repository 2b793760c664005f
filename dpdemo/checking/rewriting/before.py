"""What forward, or a module that gets its arguments, does with the whole batch, written before the call."""

import ast
from collections.abc import Sequence

from dpdemo.checking.evidence import Call, Evidence
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.calling import around_call
from dpdemo.checking.rewriting.forwards import Forward, forward_of, free_names, leaves, of_model, stored
from dpdemo.checking.rewriting.outside import mixes, outermost
from dpdemo.checking.rewriting.taking import is_alone, is_emptied, reads_around, way_to, with_names, without
from dpdemo.checking.source import attribute_of, names_in


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


def head_before(evidence: Evidence, call: Call | None) -> Repair | None:
    """Write forward's beginning, layers and all, up to what mixes samples, as it is before the call.

    What the rest of forward needs of it takes the place of an argument that the rest does not read. None
    where most layers would run before the call.
    """
    forward = forward_of(evidence, call)
    body = forward.body if forward is not None else []
    last = next((index for index, one in enumerate(body) if forward and mixes(forward, one)), -1)
    if forward is None or last < 0 or any(leaves(one) or forward.hands_over_layer(one) for one in body):
        return None
    moved, rest = body[: last + 1], body[last + 1 :]
    if not rest or _weight(forward, moved, evidence) >= _weight(forward, rest, evidence):
        return None
    made, read = {name for one in moved for name in stored(one)}, free_names(rest, forward)
    kept = [name for name in read if name in made]
    free = [name for name in forward.call_names() if forward.is_tensor(name) and name not in read]
    if len(kept) != 1 or not (free or kept[0] in forward.call_names()):
        return None
    name = kept[0] if kept[0] in forward.call_names() else free[0]
    texts = [forward.function.own(one).after for one in moved]
    match moved[-1]:
        case ast.Assign(targets=[ast.Name(id=target) as part]) if target == kept[0]:
            texts[-1] = forward.function.own(moved[-1], (part, name)).after
        case _:
            texts += [f"{name} = {kept[0]}"] if name != kept[0] else []
    lines = [of_model(one, forward.me) for one in texts]
    if name == kept[0]:
        own = forward.function.rewritten(moved[0], rest[0], forward.function.own(rest[0]).after)
    else:
        own = forward.function.rewritten(moved[0], moved[-1], f"{kept[0]} = {name}")
    return own._replace(also=(around_call(forward.call, "result", first=lines),))


def reader_before(name: str, evidence: Evidence, call: Call | None) -> Repair | None:
    """Write the only line of forward that reads an argument before the call: what it gives takes its place.

    So it is with ids of several lengths in one tensor, of which an EmbeddingBag makes a row for each sample.
    None where that line reads more than arguments.
    """
    forward = forward_of(evidence, call)
    body = forward.body if forward is not None else []
    readers = [one for one in body if name in names_in(one)]
    given = forward.function.arguments() - {forward.me} if forward is not None else set()
    match readers:
        case [ast.Assign(targets=[ast.Name(id=made) as target]) as line] if forward is not None:
            before = {one for other in body[: body.index(line)] for one in stored(other)}
            if made in given or not forward.runs_layer(line) or set(free_names([line], forward)) & before:
                return None
            text = of_model(forward.function.own(line, (target, name)).after, forward.me)
            own = forward.function.whole(line, f"{made} = {name}")
            return own._replace(also=(around_call(forward.call, "result", first=[text]),))
    return None


def updated_before(
    forward: Forward, whole: Forward, found: Sequence[ast.stmt], attributes: set[str], owner: str
) -> Repair | None:
    """Write what a module's forward learns of its argument as lines before the call.

    So it is with a running mean of the inputs, by which the module goes on to scale them.

    Args:
        forward: the module's forward.
        whole: the model's.
        found: the statements that change the module's state.
        attributes: what they write to, as `self.mean`.
        owner: the path of the module.

    Returns:
        None where the module gets anything but the model's own arguments, or reads its state before.

    """
    given = _handed_on(whole, attribute_of(owner, whole.me))
    early, late = reads_around(forward, found, attributes)
    names = [one.arg for one in forward.function.node.args.args[1:]]
    if given is None or early or not late or len(given) != len(names):
        return None
    outside = dict(zip(names, given, strict=True))
    ways = [way_to(forward.body, one) for one in found]
    if not all(way and is_alone(forward, way, set(names)) for way in ways):
        return None
    if any(stored(one) & set(names) for one in forward.function.statements()):
        return None
    first, *more = without(forward.function, [way[0] for way in ways if is_emptied(way[0], found)] or found)
    lines = [forward.function.own(way[0] if is_emptied(way[0], found) else way[-1]).after for way in ways]
    text = with_names("\n".join(dict.fromkeys(lines)), outside)
    before = of_model(text, forward.me, attribute_of(owner, "model.module"))
    call = around_call(whole.call, "result", first=[before])
    return first._replace(also=(*(one.as_change() for one in more), call))


def _handed_on(whole: Forward, module: str) -> list[str] | None:
    """Name the model's arguments that it hands on to a module, as they are; None for anything else."""
    calls = [
        (top, one)
        for top in whole.body
        for one in ast.walk(top)
        if isinstance(one, ast.Call) and ast.unparse(one.func) == module
    ]
    if len(calls) != 1 or isinstance(calls[0][0], (ast.For, ast.While, ast.If)) or calls[0][1].keywords:
        return None
    top, call = calls[0]
    known = set(whole.call_names()) - {
        name for one in whole.body[: whole.body.index(top)] for name in stored(one)
    }
    names = [one.id for one in call.args if isinstance(one, ast.Name) and one.id in known]
    is_all = names and len(names) == len(call.args) and not isinstance(top, ast.With)
    return names if is_all else None


def _weight(forward: Forward, statements: list[ast.stmt], evidence: Evidence) -> int:
    """Count the parameters of the layers that statements name."""
    read = {
        one.attr
        for statement in statements
        for one in ast.walk(statement)
        if isinstance(one, ast.Attribute) and ast.unparse(one.value) == forward.me
    }
    return sum(name.partition(".")[0] in read for name in evidence.scan.parameters)


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

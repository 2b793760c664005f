"""What statements of forward read, returned beside its result, so that they can stand behind the call."""

import ast
from collections.abc import Sequence

from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.calling import around_call, result_names
from dpdemo.checking.rewriting.forwards import Forward, free_names, of_model, stored, with_numbers
from dpdemo.checking.rewriting.keeping import LATE, value_of
from dpdemo.checking.rewriting.outside import end_outside
from dpdemo.checking.rewriting.taking import reads_around, way_to, with_names, without_gradients


def after_call(
    forward: Forward, found: Sequence[ast.stmt], attributes: set[str], *, is_guarded: bool = True
) -> Repair | None:
    """Write forward with what its statements read in its result, and them behind the call."""
    ways = [way_to(forward.body, one) for one in found]
    if not ways or not all(ways):
        return None
    tops = sorted({way[0] for way in ways}, key=lambda one: one.lineno)
    if attributes and reads_around(forward, tops, attributes)[1]:
        own = end_outside(forward, tops[0])  # then it reads what is written
        if own is not None:
            return own
    return _returned_for(forward, tops, attributes, is_guarded=is_guarded)


def _returned_for(
    forward: Forward, tops: Sequence[ast.stmt], attributes: set[str], *, is_guarded: bool
) -> Repair | None:
    end = forward.body[-1]
    if end in tops or not isinstance(end, ast.Return) or end.value is None:
        return None
    rest = forward.body[forward.body.index(tops[0]) :]
    kept = [one for one in rest if one not in tops]
    made, texts = _evaluated(forward, tops)
    if len(texts) != len(tops) or {name for one in tops for name in stored(one)} & set(
        free_names(kept, forward)
    ):
        return None
    before = [one for one in forward.body if one not in tops]
    free = [] if made else free_names(list(tops), forward)
    free = [name for name in free if name not in attributes and not forward.is_counted(name, tops)]
    copied, needed = with_numbers(free, before, forward)
    if any(forward.is_state(name) for name in needed):
        return None  # it has the batch on another dimension
    needed = [*needed, *(name for name, _ in made)]
    given_by_call = {name for name, _ in forward.call.argument_structures}
    changed = {name for one in forward.body for name in stored(one)} & given_by_call
    readers = {name: [one for one in tops if name in free_names([one], forward)] for name in needed}
    anew = {name: _given_anew(name, readers[name], kept) for name in needed}
    if any(one.lineno > line for name, line in anew.items() if line for one in readers[name]):
        return None  # it has several values
    renamed = {name: f"{name}_then" for name in needed if name in changed or anew[name]}
    texts = [with_names(text, renamed) for text in texts]
    lines: list[str] = []
    for one in rest:
        if one is tops[-1]:
            lines += [f"{name} = {text}" for name, text in made]
        lines += [f"{then} = {name}" for name, then in renamed.items() if readers[name][:1] == [one]]
        if one not in tops and one is not end:
            lines.append(forward.function.own(one).after)
    given, taken = _returning(forward, end.value, [renamed.get(name, name) for name in needed])
    moved = [*(with_names(line, renamed) for line in copied), *(of_model(one, forward.me) for one in texts)]
    moved = moved if is_guarded else [without_gradients("\n".join(moved))]
    late = [LATE] if attributes and reads_around(forward, tops, attributes)[1] else []
    own = forward.function.rewritten(tops[0], end, "\n".join([*lines, f"return {given}"]))
    call = around_call(forward.call, names_of(forward), given=taken, then=[*late, *moved])
    return own._replace(also=(call,))


def _evaluated(forward: Forward, tops: Sequence[ast.stmt]) -> tuple[list[tuple[str, str]], list[str]]:
    """Write statements as they are; a lone one that runs a layer with the value that it stores in a name."""
    if not any(forward.runs_layer(one) for one in tops):
        return [], [forward.function.own(one).after for one in tops]
    value = value_of(tops[0])
    if value is None or len(tops) > 1:
        return [], []
    value = _with_rows(forward, value)
    return [("value", forward.text(value))], [forward.function.own(tops[0], (value, "value")).after]


_REDUCES = ("mean", "sum", "std", "var", "max", "min", "norm", "median", "item", "tolist", "float", "cpu")


def _with_rows(forward: Forward, value: ast.expr) -> ast.expr:
    """Return what a number is made of, as far as layers give it: that has a row for each sample."""
    match value:
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in _REDUCES:
            return _with_rows(forward, inner) if forward.runs_layer(inner) else value
        case ast.Call(func=ast.Name(id="float" | "int"), args=[inner]):
            return _with_rows(forward, inner) if forward.runs_layer(inner) else value
    return value


def _given_anew(name: str, readers: Sequence[ast.stmt], kept: Sequence[ast.stmt]) -> int:
    """Find the line behind the first of its readers that gives a name another value; 0 where none does."""
    first = readers[0].lineno if readers else 0
    return next((one.lineno for one in kept if readers and one.lineno > first and name in stored(one)), 0)


def through_a_name(forward: Forward, found: Sequence[ast.stmt], attributes: set[str]) -> Repair | None:
    """Write what a lone assignment stores with a name, which forward reads on; and store it behind the call.

    Returns:
        None where forward reads it before, or in another way.

    """
    match found:
        case [ast.Assign(targets=[target], value=value) as statement] if statement in forward.body:
            text, name = ast.unparse(target), _name_for(target)
        case _:
            return None
    end, at = forward.body[-1], forward.body.index(statement)
    behind = forward.body[at + 1 :]
    if not name or name in forward.names() or not isinstance(end, ast.Return) or end.value is None:
        return None
    parts = {
        one: [p for p in ast.walk(one) if isinstance(p, ast.expr) and ast.unparse(p) == text]
        for one in behind
    }
    reads = [p for one in forward.body for p in ast.walk(one) if ast.unparse(p) in attributes]
    if len(reads) != 1 + sum(map(len, parts.values())):
        return None
    lines = [f"{name} = {forward.text(value)}"]
    lines += [forward.function.own(one, *((part, name) for part in parts[one])).after for one in behind]
    own = forward.function.rewritten(statement, end, "\n".join([*lines[:-1], f"{lines[-1]}, {name}"]))
    names = names_of(forward)
    stores = f"{of_model(forward.text(target), forward.me)} = {name}"
    call = around_call(forward.call, names, given=f"{names}, {name}", then=[stores])
    return own._replace(also=(call,))


def _name_for(target: ast.expr) -> str:
    """Choose a name for what is stored: the attribute's, or the key's."""
    match target:
        case ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=ast.Attribute(attr=name), slice=ast.Constant()):
            return f"{name}_now"
    return ""


def names_of(forward: Forward) -> str:
    """Write what a program may call what forward returns."""
    end = forward.body[-1]
    return result_names(end.value) if isinstance(end, ast.Return) and end.value else "result"


def _returning(forward: Forward, value: ast.expr, needed: list[str]) -> tuple[str, str]:
    """Write what forward returns with more in it, and the names that it is given to outside."""
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    texts = [forward.text(one) for one in parts]
    more = [name for name in needed if name not in texts]
    return ", ".join([*texts, *more]), ", ".join([result_names(value), *more])

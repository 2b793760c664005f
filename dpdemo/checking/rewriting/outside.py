"""What forward does on the whole batch, written where the whole batch is: outside, on what is gathered.

A loss over the batch, pairs of its samples, a running average: none of them fits into a replica. Each is
written anew as two halves. Forward ends before it, and returns what it is computed from; the rest stands in
the program, behind the call.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dpdemo.checking.evidence import Call, Evidence
from dpdemo.checking.methods import functions_like
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.calling import around_call
from dpdemo.checking.rewriting.forwards import (
    Forward,
    forward_of,
    free_names,
    leaves,
    of_model,
    stored,
    with_numbers,
)
from dpdemo.checking.source import attribute_of, names_in
from dpdemo.reports.check import Change

_MIXING = (
    r"\.(T|mT|t\(\))(?!\w)|\b(dim|axis)=0\b|\b(cat|vstack)\(\s*[\[(][^\[\]]*[\])]\s*(, 0)?\)|"
    r"\.(quantile|nanquantile|median)\([^,()]*\)|\b(cdist|pdist|cov|corrcoef|roll|randperm|unique)\b|"
    r"\b(flip|sort|argsort)\((dims?=)?[\[(]?0|"
    r"\.(mean|sum|std|var|norm|max|min|amax|amin|median|logsumexp)\(\s*(\)|(dim=)?[\[(]?0|keepdim)|"
    r"\[\s*(:,\s*None|perm\w*|idx|index|indices|order)\s*[\],]|(_loss|cross_entropy|_with_logits)\("
)
"""Code that relates the samples of a batch to each other."""
_PERHAPS = rf"{_MIXING}|@|\b(einsum|matmul|mm|sum|mean)\b|(?i:loss|criterion)\w*\("
"""Code that may, and that belongs outside too where it comes last."""


_ON_ONE_GPU = "# the layers below run on one GPU"


def after_layers(evidence: Evidence, call: Call | None, result: str = "result") -> Repair | None:
    """Write forward's end, all that comes after its last layer, as it is written outside.

    Args:
        evidence: what the check saw.
        call: a call, whose arguments the line outside has.
        result: what to call forward's result outside, where it has no name.

    Returns:
        The end, and a `return` in its place, with the rest behind the call; None where that would not repair
        it, for the samples of a batch seem to be mixed before.

    """
    forward = forward_of(evidence, call)
    if forward is None:
        return None
    body = forward.body
    last = max(
        (index for index, one in enumerate(body) if forward.reads_layer(one) or leaves(one)),
        default=-1,
    )
    if last < 0 or not any(forward.reads_layer(one) for one in body):
        return None
    kept, moved = body[: last + 1], body[last + 1 :]
    hoisted = _hoisted(forward, body[last])
    if hoisted is not None:
        kept, moved = body[:last], body[last:]
    elif last == len(body) - 1:
        return None
    if any(forward.hands_over_layer(one) for one in kept):
        return None
    if any(mixes(forward, one) for one in kept):
        return _between_layers(forward, result)
    return _cut(forward, kept, moved, {moved[0]: hoisted} if hoisted else {}, result)


def _between_layers(forward: Forward, result: str) -> Repair | None:
    """Write forward from the statement on that mixes samples as it is outside; layers behind it stay."""
    body = forward.body
    first = next(index for index, one in enumerate(body) if mixes(forward, one))
    kept, moved = body[:first], body[first:]
    made = {name for one in moved for name in stored(one)}
    hoists: dict[ast.stmt, _Hoisted] = {}
    for one in moved:
        calls = list(outermost(forward, one))
        is_simple = isinstance(one, (ast.Assign, ast.Return))
        needs_it = any(names_in(call) & made or _is_mixing(forward, call) for call in calls)
        if calls and (needs_it or not is_simple):
            return None
        if calls:
            hoists[one] = _named_calls(forward, calls, sum(len(names) for _, names in hoists.values()))
    if not hoists or not any(forward.reads_layer(one) for one in kept):
        return None
    return _cut(forward, kept, moved, hoists, result)


def from_mixing(evidence: Evidence, call: Call | None) -> Repair | None:
    """Write forward from the statement on that mixes samples, with the layers behind it, as it is outside.

    Args:
        evidence: what the check saw.
        call: a call, whose arguments the line outside has.

    Returns:
        That end, and a `return` in its place, with the rest behind the call; None where no layer runs
        before it.

    """
    forward = forward_of(evidence, call)
    body = forward.body if forward is not None else []
    first = next((index for index, one in enumerate(body) if forward and mixes(forward, one)), -1)
    if forward is None or first < 0 or any(leaves(one) or forward.hands_over_layer(one) for one in body):
        return None
    kept, moved = body[:first], body[first:]
    is_inside = forward.reads_layer(moved[0])
    hoisted = _hoisted(forward, moved[0], is_end=True) if is_inside else None
    if hoisted is None and (own := _within_sequential(forward, kept, moved, evidence)) is not None:
        return own
    are_moved = is_inside and not any(outermost(forward, moved[0]))  # its layers mix samples themselves
    if is_inside and hoisted is None and not are_moved:
        return None
    if not (hoisted or any(forward.reads_layer(one) for one in kept)):
        return None
    hoists = {moved[0]: hoisted} if hoisted else {}
    return _cut(forward, kept, moved, hoists, "result", [_ON_ONE_GPU])


def _within_sequential(
    forward: Forward, kept: list[ast.stmt], moved: list[ast.stmt], evidence: Evidence
) -> Repair | None:
    """Write a Sequential that mixes samples as its layers before that, and the rest of it outside."""
    kinds, mixing = dict(evidence.scan.module_types), forward.mixing
    for node in ast.walk(moved[0]) if mixing is not None else ():
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        name = called.removeprefix(f"{forward.me}.")
        steps = [path.removeprefix(f"{name}.") for path in (mixing.modules if mixing is not None else ())]
        first = min((int(one) for one in steps if one.isdigit()), default=0)
        if not isinstance(node, ast.Call) or kinds.get(name) != "Sequential" or not first:
            continue
        given = ", ".join(map(forward.text, node.args))
        outside = forward.function.own(moved[0], (node, f"{called}[{first}:](features)"))
        needed = [one for one in free_names(moved, forward, [node]) if not forward.is_counted(one, moved)]
        if any(one not in forward.call_names() and one not in forward.names() for one in needed):
            return None
        texts = [outside.after, *(forward.function.own(one).after for one in moved[1:])]
        texts = [of_model(re.sub(r"^return\b", "result =", one), forward.me) for one in texts]
        copied, returned = with_numbers(needed, kept, forward)
        names = ", ".join(["features", *returned])
        call = around_call(forward.call, "result", given=names, then=[*copied, _ON_ONE_GPU, *texts])
        lines = f"features = {called}[:{first}]({given})\nreturn {names}"
        return forward.function.rewritten(moved[0], moved[-1], lines)._replace(also=(call,))
    return None


def end_with_layers(forward: Forward, first: ast.stmt) -> Repair | None:
    """Write forward from a statement on, with the layers that run there, as it is written outside."""
    at = forward.body.index(first) if first in forward.body else len(forward.body)
    kept, moved = forward.body[:at], forward.body[at:]
    ends = [one for one in forward.body if leaves(one) and (one in moved or not forward.is_passed(one))]
    if not moved or ends or any(map(forward.hands_over_layer, forward.body)):
        return None
    if not any(map(forward.runs_layer, kept)):
        return None  # then nothing would be split
    return _cut(forward, kept, moved, {}, "result", [_ON_ONE_GPU])


def end_outside(forward: Forward, first: ast.stmt) -> Repair | None:
    """Write forward from a statement on as it is written outside; None where layers run behind it."""
    at = forward.body.index(first) if first in forward.body else len(forward.body)
    kept, moved = forward.body[:at], forward.body[at:]
    if not moved or any(forward.runs_layer(one) for one in moved[1:]) or any(map(leaves, moved)):
        return None
    hoisted = _hoisted(forward, first, is_end=True) if forward.runs_layer(first) else None
    if hoisted is None and forward.runs_layer(first):
        return None
    return _cut(forward, kept, moved, {first: hoisted} if hoisted else {}, "result")


def _cut(  # noqa: PLR0913, PLR0917 - what is cut, and how it is told
    forward: Forward,
    kept: list[ast.stmt],
    moved: list[ast.stmt],
    hoists: "Mapping[ast.stmt, _Hoisted]",
    result: str,
    remark: Sequence[str] = (),
) -> Repair | None:
    """End forward behind the statements that it keeps, and write those that it does not behind the call."""
    lines = [line for some, _ in hoists.values() for line in some]
    names = [name for _, some in hoists.values() for name in some]
    end = moved[-1]
    is_named = isinstance(end, ast.Return) and isinstance(end.value, ast.Name)
    written = moved[:-1] if is_named and len(moved) > 1 else moved
    texts = [_outside_text(forward, one, hoists.get(one), result) for one in written]
    needed = free_names(moved, forward, [call for one in hoists for call in outermost(forward, one)])
    needed = [name for name in needed if not forward.is_counted(name, moved)]
    copied, returned = with_numbers(needed, kept, forward)
    objects = [one for name in returned if (one := _made_outside(forward, kept, name)) is not None]
    returned = [name for name in returned if name not in {one.name for one in objects}]
    returned = [*names, *returned, *(part for one in objects for part in one.parts)]
    copied += [one.text for one in objects]
    if not returned or _is_bare(moved) or (hoists and len(texts) == 1 and _is_of_names(texts[0])):
        return None
    given = ", ".join(returned)
    told = ast.unparse(end.value) if len(written) < len(moved) else result  # type: ignore[attr-defined]
    call = around_call(forward.call, told, given=given, then=[*copied, *remark, *texts])
    own = forward.function.rewritten(moved[0], end, "\n".join([*lines, f"return {given}"]))
    return own._replace(also=(*(one.change for one in objects), call))


class _Object(NamedTuple):
    """An object that forward makes of what layers return, such as a distribution, made outside instead."""

    name: str
    parts: list[str]
    change: Change
    text: str


def _made_outside(forward: Forward, kept: list[ast.stmt], name: str) -> _Object | None:
    """Write the statement that makes an object of a class as it is outside; None of a tensor."""
    made = [one for one in kept if name in stored(one)]
    match made:
        case [ast.Assign(targets=[ast.Name()], value=ast.Call(func=called)) as statement]:
            if not ast.unparse(called).rpartition(".")[2][:1].isupper() or forward.reads_layer(called):
                return None
        case _:
            return None
    layers = list(outermost(forward, statement.value))
    parts = [f"{name}_{index}" for index in range(1, len(layers) + 1)]
    lines = [f"{part} = {forward.text(one)}" for part, one in zip(parts, layers, strict=True)]
    own = forward.function.own(statement, *zip(layers, parts, strict=True))
    is_read = any(name in names_in(one) for one in kept if one is not statement)
    if not layers or free_names([statement], forward, layers):
        return None
    inside = "\n".join([*lines, own.after] if is_read else lines)
    change = forward.function.whole(statement, inside).as_change()
    return _Object(name, parts, change, of_model(own.after, forward.me))


def mixes(forward: Forward, statement: ast.AST) -> bool:
    """Whether a statement, or what it calls, relates the samples of a batch to each other.

    What was seen of the first that does counts more than what is written.
    """
    place = forward.mixing.place if forward.mixing is not None else None
    if isinstance(statement, ast.stmt) and place is not None and place.file == forward.function.file:
        if statement.lineno <= place.line <= (statement.end_lineno or statement.lineno):
            return True
        if statement.lineno < place.line:
            return False
    called = {
        ast.unparse(node.func).removeprefix(f"{forward.me}.")
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
    }
    methods = (one for one in functions_like(forward.function) if one.node.name in called)
    texts = [forward.text(statement), *(one.text(part) for one in methods for part in one.node.body)]
    texts += [text for name, text in forward.inner.items() if name in called]
    return any(re.search(_MIXING, text) for text in texts)


def _is_of_names(line: str) -> bool:
    """Whether a line gives names, as they are, another name."""
    match ast.parse(line).body:
        case [ast.Assign(value=ast.Tuple(elts=parts))]:
            return all(isinstance(one, ast.Name) for one in parts)
        case [ast.Assign(value=ast.Name())]:
            return True
    return False


def _is_bare(moved: list[ast.stmt]) -> bool:
    """Whether nothing is computed: a name, or names, are returned."""
    if len(moved) != 1 or not isinstance(moved[0], ast.Return) or moved[0].value is None:
        return False
    computed = (ast.Call, ast.BinOp, ast.Subscript, ast.Constant, ast.Dict, ast.List, ast.JoinedStr)
    return not any(isinstance(one, computed) for one in ast.walk(moved[0].value))


_Hoisted = tuple[list[str], list[str]]


def _hoisted(forward: Forward, statement: ast.stmt, *, is_end: bool = False) -> _Hoisted | None:
    """Write the layers that run inside a larger expression in lines of their own; None where all stays."""
    if not isinstance(statement, (ast.Return, ast.Assign)) or statement.value is None:
        return None
    is_last = is_end or isinstance(statement, ast.Return)
    calls = list(outermost(forward, statement.value))
    mixes = re.search(_PERHAPS, forward.text(statement)) is not None and calls != [statement.value]
    if not calls or not (mixes or is_last):
        return None
    if any(re.search(_MIXING, forward.text(one)) for one in calls):
        return None
    return _named_calls(forward, calls)


def _named_calls(forward: Forward, calls: Sequence[ast.expr], known: int = 0) -> _Hoisted:
    """Write calls of layers in lines of their own, and the names that they are given there."""
    numbers = range(known + 1, known + len(calls) + 1)
    names = ["features"] if len(calls) == 1 and not known else [f"features_{index}" for index in numbers]
    return [f"{name} = {forward.text(one)}" for name, one in zip(names, calls, strict=True)], names


def outermost(forward: Forward, node: ast.AST) -> Iterator[ast.expr]:
    """List the calls of layers in an expression, without those among another one's arguments."""
    inner = node
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and type(node.slice.value) is int
    ):
        inner = node.value  # one of the results of a layer that has several
    is_call = isinstance(inner, ast.Call) and isinstance(node, ast.expr) and _is_layers(forward, inner.func)
    if is_call and not any(_is_mixing(forward, one) for one in ast.walk(inner) if isinstance(one, ast.Call)):
        yield node  # type: ignore[misc] # an expression, as was asked
        return
    for one in ast.iter_child_nodes(node):
        yield from outermost(forward, one)


def _is_mixing(forward: Forward, call: ast.AST) -> bool:
    """Whether a layer that is called, or one in it, relates the samples of a batch to each other."""
    name = ast.unparse(call.func).removeprefix(f"{forward.me}.") if isinstance(call, ast.Call) else ""
    path = re.sub(r"\[(\d+)\]", r".\1", name)
    if forward.mixing is not None and attribute_of(path, forward.me) in forward.modules:
        return path not in forward.mixing.alone  # it mixes, or is given what is mixed
    methods = (one.text(one.node) for one in functions_like(forward.function) if one.node.name == name)
    return any(re.search(_MIXING, text) for text in (forward.inner.get(name, ""), *methods))


def _is_layers(forward: Forward, called: ast.expr) -> bool:
    """Whether what is called is a layer, and not a method of its weights or of what it returned."""
    is_one = forward.reads_layer(called) and not forward.is_about_parameters(called)
    return is_one and not any(isinstance(one, ast.Call) for one in ast.walk(called))


def _outside_text(forward: Forward, statement: ast.stmt, hoisted: _Hoisted | None, result: str) -> str:
    """Write a statement as it stands outside: of the model, and with a name for what forward returned."""
    parts: list[tuple[ast.AST, str]] = []
    if hoisted is not None:
        calls = outermost(forward, statement.value)  # type: ignore[attr-defined] # it was hoisted from
        parts = list(zip(calls, hoisted[1], strict=True))
    text = forward.function.own(statement, *parts).after
    if isinstance(statement, ast.Return):
        text = re.sub(r"^return\b", f"{result} =", text)
    return of_model(text, forward.me)

"""What forward does on the whole batch, written where the whole batch is: outside, on what is gathered.

A loss over the batch, pairs of its samples, a running average: none of them fits into a replica. Each is
written anew as two halves. Forward ends before it, and returns what it is computed from; the rest stands in
comments below, as it is written after the call.
"""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Call, Evidence
from dpdemo.checking.forwards import (
    Forward,
    commented,
    forward_of,
    free_names,
    leaves,
    of_model,
    stored,
    with_numbers,
)
from dpdemo.checking.lines import Own
from dpdemo.checking.looking import call_of

_MIXING = (
    r"\.(T|mT|t\(\))(?!\w)|\b(dim|axis)=0\b|\b(cat|vstack)\(\s*[\[(][^\[\]]*[\])]\s*(, 0)?\)|"
    r"\b(cdist|pdist|cov|corrcoef|roll|randperm|unique)\b|"
    r"\b(flip|sort|argsort)\((dims?=)?[\[(]?0|"
    r"\.(mean|sum|std|var|norm|max|min|amax|amin|median|logsumexp)\(\s*(\)|(dim=)?[\[(]?0|keepdim)|"
    r"\[\s*(None|:,\s*None|perm\w*|idx|index|indices|order)\s*[\],]|(_loss|cross_entropy|_with_logits)\("
)
"""Code that relates the samples of a batch to each other."""
_PERHAPS = rf"{_MIXING}|@|\b(einsum|matmul|mm|sum|mean)\b|(?i:loss|criterion)\w*\("
"""Code that may, and that belongs outside too where it comes last."""


def after_layers(evidence: Evidence, call: Call | None, result: str = "result") -> Own | None:
    """Write forward's end, all that comes after its last layer, as it is written outside.

    Args:
        evidence: what the check saw.
        call: a call, whose arguments the line outside has.
        result: what to call forward's result outside, where it has no name.

    Returns:
        The end, and a `return` in its place with the rest in comments; None where that would not repair it,
        for the samples of a batch seem to be mixed before.

    """
    forward = forward_of(evidence, call)
    if forward is None:
        return None
    body = forward.body
    last = max(
        (index for index, one in enumerate(body) if forward.reads_layer(one) or leaves(one)), default=-1
    )
    if last < 0 or not any(forward.reads_layer(one) for one in body):
        return None
    kept, moved = body[: last + 1], body[last + 1 :]
    hoisted = _hoisted(forward, body[last])
    if hoisted is not None:
        kept, moved = body[:last], body[last:]
    elif last == len(body) - 1:
        return None
    if any(re.search(_MIXING, forward.text(one)) or forward.hands_over_layer(one) for one in kept):
        return None
    lines, names = hoisted or ([], [])
    is_named = isinstance(moved[-1], ast.Return) and isinstance(moved[-1].value, ast.Name)
    written = moved[:-1] if is_named and len(moved) > 1 else moved
    texts = [_outside_text(forward, one, hoisted, result) for one in written]
    needed = free_names(moved, forward, list(_outermost(forward, moved[0])) if hoisted else [])
    copied, returned = with_numbers(needed, kept, forward)
    returned = [*names, *returned]
    if not returned or _is_bare(moved):
        return None
    head = f"{', '.join(returned)} = {call_of(forward.call)}"
    outside = "\n".join([head, *copied, *texts])
    after = "\n".join(
        [*lines, f"return {', '.join(returned)}", "# outside, on what is gathered:", commented(outside)]
    )
    return forward.function.rewritten(moved[0], moved[-1], after)


def before_layers(evidence: Evidence, call: Call | None) -> Own | None:
    """Write forward's beginning, if it mixes samples of its arguments, as it is written before the call."""
    forward = forward_of(evidence, call)
    body = forward.body if forward is not None else []
    mixing = [index for index, one in enumerate(body) if forward and re.search(_MIXING, forward.text(one))]
    if forward is None or not mixing:
        return None
    moved = body[: mixing[-1] + 1]
    given = forward.function.arguments() - {forward.me}
    if any(forward.reads_layer(one) or leaves(one) or not stored(one) <= given for one in moved):
        return None
    text = "\n".join(of_model(forward.function.own(one).after, forward.me) for one in moved)
    after = f"# outside, before the call:\n{commented(text)}"
    return forward.function.rewritten(moved[0], moved[-1], after)


def _is_bare(moved: list[ast.stmt]) -> bool:
    """Whether nothing is computed: a name, or names, are returned."""
    if len(moved) != 1 or not isinstance(moved[0], ast.Return) or moved[0].value is None:
        return False
    return not any(isinstance(one, (ast.Call, ast.BinOp, ast.Subscript)) for one in ast.walk(moved[0].value))


_Hoisted = tuple[list[str], list[str]]


def _hoisted(forward: Forward, statement: ast.stmt) -> _Hoisted | None:
    """Write the layers that run inside a larger expression in lines of their own; None where all stays."""
    if not isinstance(statement, (ast.Return, ast.Assign)) or statement.value is None:
        return None
    is_last = isinstance(statement, ast.Return)
    calls = list(_outermost(forward, statement.value))
    mixes = re.search(_PERHAPS, forward.text(statement)) is not None and calls != [statement.value]
    if not calls or not (mixes or is_last):
        return None
    if any(re.search(_MIXING, forward.text(one)) for one in calls):
        return None
    names = ["features"] if len(calls) == 1 else [f"features_{index}" for index in range(1, len(calls) + 1)]
    return [f"{name} = {forward.text(one)}" for name, one in zip(names, calls, strict=True)], names


def _outermost(forward: Forward, node: ast.AST) -> Iterator[ast.expr]:
    """List the calls of layers in an expression, without those among another one's arguments."""
    inner = node
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and type(node.slice.value) is int
    ):
        inner = node.value  # one of the results of a layer that has several
    if isinstance(inner, ast.Call) and isinstance(node, ast.expr) and _is_layers(forward, inner.func):
        yield node
        return
    for one in ast.iter_child_nodes(node):
        yield from _outermost(forward, one)


def _is_layers(forward: Forward, called: ast.expr) -> bool:
    """Whether what is called is a layer, and not a method of its weights or of what it returned."""
    is_one = forward.reads_layer(called) and not forward.is_about_parameters(called)
    return is_one and not any(isinstance(one, ast.Call) for one in ast.walk(called))


def _outside_text(forward: Forward, statement: ast.stmt, hoisted: _Hoisted | None, result: str) -> str:
    """Write a statement as it stands outside: of the model, and with a name for what forward returned."""
    parts: list[tuple[ast.AST, str]] = []
    if hoisted is not None and forward.reads_layer(statement):
        calls = _outermost(forward, statement.value)  # type: ignore[attr-defined] # it was hoisted from
        parts = list(zip(calls, hoisted[1], strict=True))
    text = forward.function.own(statement, *parts).after
    if isinstance(statement, ast.Return):
        text = re.sub(r"^return\b", f"{result} =", text)
    return of_model(text, forward.me)

"""What forward leaves on `self` for its next call, a row for each sample: handed over, and handed back."""

import ast
import linecache
import re

from dpdemo.checking.evidence import Call, Evidence, StateChange
from dpdemo.checking.looking import call_by_keyword, call_of
from dpdemo.checking.methods import functions_like
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.calling import result_names
from dpdemo.checking.rewriting.forwards import Forward, forward_of
from dpdemo.checking.source import Function, attribute_of
from dpdemo.reports.check import Change, Place


def carried(change: StateChange, evidence: Evidence, call: Call | None) -> Repair | None:
    """Write a forward that takes the state of its last call as an argument, and returns the new one.

    Where forward writes it before it reads it, there is nothing to take.

    Returns:
        None where it has no row for each sample, or others than forward have to do with it.

    """
    forward = forward_of(evidence, call)
    name = change.path
    turns = _turns(change, forward) if forward is not None else None
    if forward is None or turns is None or "." in name:
        return None
    if change.before not in ("None", "absent") or name in forward.names() or not _is_forwards(forward, name):
        return None
    is_made_anew = _is_written_first(forward, name)
    head = None if is_made_anew else _with_argument(forward.function, name)
    own = _in_a_local(forward, name, *turns)
    if own is None or (head is None and not is_made_anew):
        return None
    end = forward.body[-1]
    assert isinstance(end, ast.Return)  # noqa: S101 - so forward_of reads it
    assert end.value is not None  # noqa: S101
    names = result_names(end.value)
    text = call_of(forward.call)
    state = attribute_of(name, "model.module")
    is_full = len(forward.call.argument_structures) == len(forward.function.node.args.args) - 1
    taken = text if is_full else call_by_keyword(forward.call)  # in one list: it is cut as the batch is
    turned = turns[0].replace("{}", state)
    handed = f"None if {state} is None else {turned}" if turned else state
    taken = text if is_made_anew else f"{taken[:-1]}, {handed if is_full else f'{name}={handed}'})"
    inner = f"({names})" if forward.text(end.value).startswith("(") and "," in names else names
    lines = [f"{inner}, {state} = {taken}", *([f"{state} = {turned}"] if turned else [])]
    call_line = Change(None, f"{names} = {text}", "\n".join(lines))
    return own._replace(also=(*([head] if head else []), call_line))


def _is_written_first(forward: Forward, name: str) -> bool:
    """Whether the first line of forward that has to do with it gives it a value of other things."""
    attribute = attribute_of(name, forward.me)
    first = next(one for one in forward.body if _mentions(one, attribute))
    targets = [ast.unparse(one) for one in first.targets] if isinstance(first, ast.Assign) else []
    return attribute in targets and isinstance(first, ast.Assign) and not _mentions(first.value, attribute)


def _mentions(node: ast.AST, attribute: str) -> bool:
    return any(isinstance(one, ast.Attribute) and ast.unparse(one) == attribute for one in ast.walk(node))


def _is_forwards(forward: Forward, name: str) -> bool:
    """Whether forward reads it, and calls no other method that has to do with it."""
    attribute = attribute_of(name, forward.me)
    nodes = [one for one in ast.walk(forward.function.node) if isinstance(one, ast.Attribute)]
    called = {one.attr for one in nodes}
    others = [one for one in functions_like(forward.function) if one.node is not forward.function.node]
    is_others = any(one.node.name in called and f".{name}" in one.text(one.node) for one in others)
    return not is_others and any(
        isinstance(one.ctx, ast.Load) and ast.unparse(one) == attribute for one in nodes
    )


def _with_argument(function: Function, name: str) -> Change | None:
    """Write the line of a `def` that ends the arguments by position, and one with another behind them."""
    given = function.node.args
    last: ast.arg | ast.expr = given.args[-1]
    last = given.defaults[-1] if given.defaults else last
    row, column = last.end_lineno or 0, last.end_col_offset or 0
    line = linecache.getline(function.file, row).encode()
    is_apart = row != function.node.body[0].lineno
    if given.vararg is not None or not is_apart:
        return None
    before, after = line[:column].decode(), line[column:].decode()
    code = (before + after).strip()
    place = Place(function.file, row, function.node.name, code)
    return Change(place, code, f"{before}, {name}=None{after}".strip())


_EACH = "tuple(one.transpose(0, 1){} for one in {})"


def _turns(change: StateChange, forward: Forward) -> tuple[str, str] | None:
    """Say how the state is given back with its rows first, and how it is taken.

    Returns:
        Code with the state as `{}`: "" where the rows come first, as they do not in the state of an RNN; None
        where it has no row for each sample.

    """
    sizes = re.match(r"a tensor of shape \((\d+), (\d+)?", change.single)
    rows = forward.call.rows
    if sizes and int(sizes[1]) == rows:
        return "", ""
    if sizes and sizes[2] and int(sizes[2]) == rows:
        return "{}.transpose(0, 1)", "{}.transpose(0, 1).contiguous()"
    read = set(re.findall(r"\w+", change.written.partition("=")[2]))
    if change.single == "a tuple of 2" and any(map(forward.is_state, read)):
        return _EACH.format("", "{}"), _EACH.format(".contiguous()", "{}")
    return None


def _in_a_local(forward: Forward, name: str, given_back: str, taken: str) -> Repair | None:
    """Write forward from the first line on that has to do with it, with a name in place of the attribute."""
    body, end = forward.body, forward.body[-1]
    attribute = attribute_of(name, forward.me)
    first = next(one for one in body if _mentions(one, attribute))
    if end not in forward.function.node.body or not isinstance(end, ast.Return) or end.value is None:
        return None
    texts = []
    for one in body[body.index(first) :]:
        parts: list[tuple[ast.AST, str]] = [
            (part, name)
            for part in ast.walk(one)
            if isinstance(part, ast.Attribute) and ast.unparse(part) == attribute
        ]
        texts.append(forward.function.own(one, *parts).after)
    if taken:
        texts.insert(0, f"{name} = {name} if {name} is None else {taken.replace('{}', name)}")
    result = given_back.replace("{}", name) or name
    return forward.function.rewritten(first, end, "\n".join([*texts[:-1], f"{texts[-1]}, {result}"]))

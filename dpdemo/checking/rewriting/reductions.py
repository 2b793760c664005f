"""A loss that is an average, written as the sum and the count that it is made of."""

import ast
import re

from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.results import part_at
from dpdemo.checking.source import Function, in_brackets
from dpdemo.reports.check import Change, Place

_OF_CLASSES = ("cross_entropy", "nll_loss")
_OF_ELEMENTS = (
    *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
    *("binary_cross_entropy", "binary_cross_entropy_with_logits"),
)
_CLAMPED = r"(.+)\.clamp(?:_min)?\((?:min=)?([\d.e+-]+)\)"
_SUM = r".*(\.sum\([^()]*\)|\.clamp\(.*\)|\.clamp_min\(.*\))"


def sum_and_count(forward: Place | None, path: str, given: str) -> Repair | None:
    """Write forward's return of an average as one of its sum and its count.

    Args:
        forward: where forward is defined.
        path: where the average is in the result; "" is all of it.
        given: the call that has the result, as it is written outside.

    Returns:
        The line, or the two of `loss = ...` and `return loss`; None where the average is not written out.

    """
    part = part_at(forward, "")
    if part is None or path or not isinstance(part.statement, (ast.Return, ast.Assign)):
        return None
    function, value = part.function, part.node
    first: ast.stmt = part.statement
    last: ast.stmt = part.statement
    if isinstance(value, ast.Name):
        made = _made_just_before(function, value.id)
        if made is None:
            return None
        first, value = made, made.value
    elif isinstance(first, ast.Assign):
        made = _made_just_before(function, ast.unparse(first.targets[0]))
        if made is not first:
            return None
    if not isinstance(last, ast.Return):
        last = function.node.body[-1]
    halves = _halves(function, value)
    if halves is None or (first is not last and function.node.body[-1] is not last):
        return None
    sum_of, count_of = halves
    clamped = re.fullmatch(
        _CLAMPED, _made(function, ast.parse(count_of, mode="eval").body, count_of), re.DOTALL
    )
    least = f".clamp(min={clamped[2]})" if clamped else ""  # of the whole batch, and of no chunk
    total, count = (f"{in_brackets(one)}.reshape(1)" for one in (sum_of, clamped[1] if clamped else count_of))
    outside = f"total, count = {given}\nloss = total.sum() / count.sum(){least}"
    own = function.rewritten(first, last, f"return {total}, {count}")
    return own._replace(also=(Change(None, f"loss = {given}", outside),))


def _made_just_before(function: Function, name: str) -> ast.Assign | None:
    """Find the line before the last one, if it gives a name the value that the last one returns."""
    match function.node.body[-2:]:
        case [ast.Assign(targets=[ast.Name(id=known)]) as made, ast.Return(value=ast.Name(id=ended))]:
            return made if known == ended == name else None
    return None


def _made(function: Function, value: ast.expr, text: str = "") -> str:
    """Return the source of a value, of a name that of what it is given."""
    if isinstance(value, ast.Name):
        for one in function.statements():
            match one:
                case ast.Assign(targets=[ast.Name(id=known)], value=given) if known == value.id:
                    return function.text(given)
    return text or function.text(value)


def _halves(function: Function, value: ast.expr) -> tuple[str, str] | None:
    """Write the sum and the count of an average; None where it is not known as one."""
    match value:
        case ast.BinOp(op=ast.Div(), left=total, right=count):
            is_average = all(re.fullmatch(_SUM, _made(function, one), re.DOTALL) for one in (total, count))
            return (function.text(total), function.text(count)) if is_average else None
        case ast.BinOp(op=ast.Add(), left=one, right=other):
            halves = _halves(function, one), _halves(function, other)
            if halves[0] is None or halves[1] is None or halves[0][1] != halves[1][1]:
                return None
            return f"{halves[0][0]} + {halves[1][0]}", halves[0][1]
        case ast.Call(
            func=ast.Attribute(value=ast.Name() | ast.Subscript() as what, attr="mean"), args=[], keywords=[]
        ):
            text = function.text(what)
            return f"{text}.sum()", _number(text)
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr=name), args=[of, labels, *_], keywords=given):
            text = f'{function.text(value)[:-1].rstrip().rstrip(",")}, reduction="sum")'
            options = {one.arg or "": function.text(one.value) for one in given}
            of_two = len(value.args) == 2 and "reduction" not in options
            divisor = _count(name, function.text(of), function.text(labels), options) if of_two else None
            return (text, divisor) if divisor else None
    return None


def _number(text: str) -> str:
    return f"torch.tensor({text}.numel(), device={text}.device)"


def _count(name: str, of: str, labels: str, options: dict[str, str]) -> str | None:
    """Write what a loss of torch.nn.functional divides its sum by; None where that is not known."""
    if name in _OF_ELEMENTS and "weight" not in options:
        return _number(in_brackets(of))
    if name not in _OF_CLASSES or "label_smoothing" in options:
        return None
    counted = f"({labels} != {options.get('ignore_index', '-100')})"
    if "weight" not in options:
        return f"{counted}.sum()"
    return f"({options['weight']}[{labels}.clamp(min=0)] * {counted}).sum()"

"""The user's lines that make forward's result: finding the part at a path, and writing it anew."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dpdemo.checking.repair import Repair
from dpdemo.checking.source import Function, function_at, tree_of
from dpdemo.reports.check import Place

Rewrite = Callable[[ast.expr, str], str | None]
"""Writes an expression anew, given its tree and its source; None where it does not know how."""

_STEP = re.compile(r"\[(\d+)\]|\['([^']*)'\]|\.(\w+)")


@dataclass(frozen=True)
class Part:
    """An expression that forward returns, or a part of it, and the statement that it stands in."""

    function: Function
    statement: ast.stmt
    node: ast.expr
    path: str
    """Where it stands in the result: shorter than what was asked for, where the rest is not written out."""

    @property
    def text(self) -> str:
        """Its source."""
        return self.function.text(self.node)

    def own(self, text: str) -> Repair:
        """Write its statement with another text in its place."""
        return self.function.own(self.statement, (self.node, text))


def part_at(forward: Place | None, path: str) -> Part | None:
    """Find where forward's result is written, or as much of the way to a part of it as is written out.

    Args:
        forward: where forward is defined.
        path: as `[0]['boxes']` or `.field`; "" is the whole result.

    """
    end = whole_return(forward)
    if end is None:
        return None
    function, statement, found = end
    statement, found = _named(function, statement, found)
    reached = ""
    for step in _STEP.finditer(path):
        inner = _part(function, found, step)
        if inner is None:
            break
        statement, found = _named(function, statement, inner)
        reached += step[0]
    return Part(function, statement, found, reached)


def whole_return(forward: Place | None) -> tuple[Function, ast.stmt, ast.expr] | None:
    """Find the statement that ends forward, and what it returns; None where there are several.

    With a place that is such a statement's it is that one.
    """
    function = function_at(forward)
    if function is None or forward is None:
        return None
    ends = [one for one in function.statements() if isinstance(one, ast.Return) and one.value is not None]
    if len(ends) > 1:
        ends = [one for one in ends if one.lineno <= forward.line <= (one.end_lineno or 0)]
    if len(ends) != 1 or ends[0].value is None:
        return None
    return function, ends[0], ends[0].value


def returned(forward: Place | None, path: str, rewrite: Rewrite) -> Repair | None:
    """Write the part of forward's result at a path anew: in `return`, or in a line before it."""
    part = part_at(forward, path)
    if part is None or part.path != path:
        return None
    text = rewrite(part.node, part.text)
    return None if text is None else part.own(text)


def _named(function: Function, statement: ast.stmt, value: ast.expr) -> tuple[ast.stmt, ast.expr]:
    """Follow a name to the one line that gives it a value, where that says more than the name."""
    if not isinstance(value, ast.Name):
        return statement, value
    given = [
        one
        for one in function.statements()
        if isinstance(one, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == value.id for target in one.targets)
    ]
    written = given[0].value if len(given) == 1 else value
    is_empty = ast.unparse(written) in ("[]", "{}")
    if isinstance(written, (ast.Dict, ast.Tuple, ast.List, ast.IfExp, ast.Call)) and not is_empty:
        return given[0], written
    return statement, value  # an empty list or dict is filled later


def _part(function: Function, value: ast.expr, step: re.Match[str]) -> ast.expr | None:
    """Find a part of a display, such as a dict's value, or of a call that makes an object of its fields."""
    number, key, field = step.groups()
    match value:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) if number and int(number) < len(parts):
            return parts[int(number)]
        case ast.Dict(keys=keys, values=values) if key:
            pairs = zip(keys, values, strict=True)
            return next((v for k, v in pairs if isinstance(k, ast.Constant) and k.value == key), None)
        case ast.Call(func=ast.Name(id=name), args=given, keywords=keywords) if key or field:
            fields = list(_fields(function.file, name))
            known = dict(zip(fields, given, strict=False)) | {
                one.arg: one.value for one in keywords if one.arg
            }
            return known.get(key or field)
    return None


def _fields(file: str, name: str) -> Iterator[str]:
    """List the fields of a NamedTuple, a dataclass or a namedtuple that a file defines, in order."""
    for node in ast.walk(tree_of(file)):
        match node:
            case ast.ClassDef(name=known, body=body) if known == name:
                lines = [one.target for one in body if isinstance(one, ast.AnnAssign)]
                yield from (target.id for target in lines if isinstance(target, ast.Name))
            case ast.Assign(targets=[ast.Name(id=known)], value=ast.Call(args=[_, names])) if known == name:
                yield from re.findall(r"\w+", ast.unparse(names))


def left_out(forward: Place | None, path: str, *others: str) -> Repair | None:
    """Write forward's result without the part at a path, and those at others in the same tuple or dict."""
    *outer, last = [step[0] for step in _STEP.finditer(path)] or [""]
    step = _STEP.fullmatch(last)
    whole = part_at(forward, "".join(outer))
    if step is None or whole is None:
        return None
    steps = [step, *(last_steps[-1] for other in others if (last_steps := list(_STEP.finditer(other))))]
    parts = [found for one in steps if (found := _part(whole.function, whole.node, one)) is not None]

    def rewrite(value: ast.expr, _: str) -> str | None:
        match value:
            case ast.Tuple(elts=elements) if parts:
                kept = [ast.unparse(one) for one in elements if one not in parts]
                return ", ".join(kept) if len(kept) != 1 or outer else kept[0]
            case ast.Dict(keys=keys, values=values) if parts:
                kept = [
                    f"**{ast.unparse(v)}" if k is None else f"{ast.unparse(k)}: {ast.unparse(v)}"
                    for k, v in zip(keys, values, strict=True)
                    if v not in parts
                ]
                return f"{{{', '.join(kept)}}}"
        return None

    return returned(forward, "".join(outer), rewrite)

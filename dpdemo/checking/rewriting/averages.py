"""Which layers a loop over parameters writes to: of a moving average the target, and not what it follows."""

import ast
import re
from collections.abc import Iterator, Sequence

from dpdemo.checking.methods import functions_like
from dpdemo.checking.rewriting.forwards import Forward
from dpdemo.checking.source import attribute_of
from dpdemo.checking.writes import changes_in_place


def layers_written(forward: Forward, found: Sequence[ast.stmt]) -> set[str]:
    """Name the layers whose parameters statements write to; all of them where that cannot be told.

    Args:
        forward: the method that the statements stand in.
        found: the statements, which may call other methods of the model.

    Returns:
        The layers as forward calls them, as `self.target`.

    """
    written: set[str] = set()
    for loop in _loops(forward, found):
        sources = dict(_sources(loop, forward.me))
        names = set(_names_written(loop))
        if not names or not names <= set(sources):
            written = set()
            break
        written |= {sources[name] for name in names}
    return written or {attribute_of(name, forward.me) for name in forward.layers}


def _loops(forward: Forward, found: Sequence[ast.stmt]) -> Iterator[ast.For]:
    """List the loops in statements, and in the methods that they call."""
    nodes = [part for one in found for part in ast.walk(one)]
    called = {ast.unparse(one.func) for one in nodes if isinstance(one, ast.Call)}
    methods = (one for one in functions_like(forward.function) if f"{forward.me}.{one.node.name}" in called)
    nodes += [part for one in methods for part in ast.walk(one.node)]
    return (one for one in nodes if isinstance(one, ast.For) and "parameters(" in ast.unparse(one.iter))


def _sources(loop: ast.For, me: str) -> Iterator[tuple[str, str]]:
    """List the names that a loop gives parameters, with the layers that they are of."""
    zipped = isinstance(loop.iter, ast.Call) and ast.unparse(loop.iter.func) == "zip"
    values = loop.iter.args if zipped and isinstance(loop.iter, ast.Call) else [loop.iter]
    targets = loop.target.elts if isinstance(loop.target, ast.Tuple) and zipped else [loop.target]
    for target, value in zip(targets, values, strict=False):
        layer = re.match(rf"({me}\.\w+)\b.*parameters\(", ast.unparse(value))
        for one in ast.walk(target):
            if isinstance(one, ast.Name) and layer is not None:
                yield one.id, layer[1]


def _names_written(loop: ast.For) -> Iterator[str]:
    """List the names whose numbers a loop changes: `p.data = ...`, `p.data.copy_(...)`, `p.mul_(...)`."""
    for one in ast.walk(loop):
        match one:
            case ast.Attribute(value=ast.Name(id=name), attr="data", ctx=ast.Store()):
                yield name
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if changes_in_place(attr):
                yield ast.unparse(value).partition(".")[0]
            case ast.AugAssign(target=target):
                yield ast.unparse(target).partition(".")[0]

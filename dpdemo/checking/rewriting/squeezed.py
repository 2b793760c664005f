"""`squeeze()` without a dimension, which takes the batch away too where a chunk is one sample."""

import ast
from collections.abc import Iterator

from dpdemo.checking.evidence import Evidence, Probe
from dpdemo.checking.methods import methods_in
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.source import Function, function_at

_ALL_BUT_THE_BATCH = "tuple(range(1, {}.dim()))"


def has_a_lone_row(probe: Probe) -> bool:
    """Whether a chunk of a batch is a single row, and the batch is not."""
    return probe.split is not None and probe.batch_size > 1 and 1 in probe.split.sizes()


def batch_kept(evidence: Evidence) -> Repair | None:
    """Write the only line of the user's that squeezes all dimensions, and one that leaves the first as it is.

    Returns:
        None where there is no such line, or several.

    """
    calls = [
        (function, node)
        for function in _functions(evidence)
        for node in ast.walk(function.node)
        if isinstance(node, ast.Call) and _squeezed(node) is not None
    ]
    if len({(function.file, node.lineno) for function, node in calls}) != 1:
        return None
    function, call = calls[0]
    value = _squeezed(call)
    assert value is not None  # noqa: S101 - looked for above
    edits, text = Edits(function.file), function.text(value)
    name, given = (text, text) if isinstance(value, ast.Name) else ("whole", f"(whole := {text})")
    edits.replace(call, f"{given}.squeeze({_ALL_BUT_THE_BATCH.format(name)})")
    return repair_of(edits.changes())


def _functions(evidence: Evidence) -> Iterator[Function]:
    """List the methods of the user's classes in the model, but for `__init__`."""
    forward = function_at(evidence.scan.forward)
    seen = set()
    for name, file in evidence.scan.classes:
        for function in methods_in(file, name.rpartition(".")[2], 0).values() if file else ():
            if function.node.name != "__init__" and function.node not in seen:
                seen.add(function.node)
                yield function
    if forward is not None and forward.node not in seen:
        yield forward


def _squeezed(node: ast.Call) -> ast.expr | None:
    """Find what `x.squeeze()` or `torch.squeeze(x)` squeezes, if it is not what the model holds."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="squeeze"), args=[value]):
            squeezed = value if not node.keywords else None
        case ast.Call(func=ast.Attribute(value=value, attr="squeeze"), args=[], keywords=[]):
            squeezed = value
        case _:
            return None
    is_held = isinstance(squeezed, ast.Attribute) and ast.unparse(squeezed.value) == "self"
    return None if is_held else squeezed

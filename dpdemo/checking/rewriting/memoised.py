"""Functions whose results are kept by their arguments: replicas get the tensors that another has made."""

import ast
import re
from collections.abc import Iterator

from dpdemo.checking.evidence import Evidence
from dpdemo.checking.looking import crossed_devices, device_at
from dpdemo.checking.repair import Repair, repair_of
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.source import FUNCTIONS, Function, function_at, tree_of
from dpdemo.reports.check import Place

_KEEPS = re.compile(r"(functools\.)?(lru_cache|cache)\b")


def moved_where_called(evidence: Evidence) -> Iterator[tuple[str, Place, Repair | None]]:
    """List the functions with `lru_cache` or `cache` that a replica called before tensors were on two GPUs.

    Returns:
        Their names, the line that calls each, and the calls with what they give moved to the replica's GPU.

    """
    told: set[str] = set()
    for _, error in crossed_devices(evidence):
        for place in error.places:
            function = function_at(place)
            for name, calls in _kept_calls(function).items() if function is not None else ():
                if function is not None and name not in told:
                    told.add(name)
                    here = Place(function.file, calls[0].lineno, function.node.name, function.text(calls[0]))
                    yield name, here, _moved(function, calls, evidence)


def _kept_calls(function: Function) -> dict[str, list[ast.Call]]:
    """Find a function's calls of those in its file that keep their results, whatever the GPU."""
    keeping = {
        one.name
        for one in ast.walk(tree_of(function.file))
        if isinstance(one, FUNCTIONS)
        and any(_KEEPS.match(ast.unparse(decorator)) for decorator in one.decorator_list)
        and not any(part.arg in ("self", "device") for part in one.args.args)
    }
    found: dict[str, list[ast.Call]] = {}
    for one in ast.walk(function.node):
        if isinstance(one, ast.Call) and (name := ast.unparse(one.func).rpartition(".")[2]) in keeping:
            found.setdefault(name, []).append(one)
    return found


def _moved(function: Function, calls: list[ast.Call], evidence: Evidence) -> Repair | None:
    """Write calls with their tensors moved, those of a tuple one by one."""
    device = device_at(Place(function.file, function.node.lineno), evidence)
    several = {
        id(one.value)
        for one in function.statements()
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Tuple)
    }
    edits = Edits(function.file)
    for one in calls:
        text = function.text(one)
        is_one = id(one) not in several
        edits.replace(one, f"{text}.to({device})" if is_one else f"(part.to({device}) for part in {text})")
    return repair_of(edits.changes())

"""State that forward changes, written where it lasts: on the model itself, around the call."""

import ast
import re
from collections.abc import Sequence

from dpdemo.checking.evidence import Call, Evidence, StateChange
from dpdemo.checking.looking import call_of, device_at, forward_place, is_entered
from dpdemo.checking.repair import Repair
from dpdemo.checking.rewriting.bycalls import call_outside
from dpdemo.checking.rewriting.carrying import carried
from dpdemo.checking.rewriting.forwards import (
    forward_of,
    read_method,
)
from dpdemo.checking.rewriting.keeping import assigned_by_each_gpu
from dpdemo.checking.rewriting.moving import Home, home_of, moved, runs_itself
from dpdemo.checking.rewriting.returning import names_of
from dpdemo.checking.rewriting.taking import taken_out
from dpdemo.checking.rewriting.weightwrites import numbers_outside
from dpdemo.checking.source import Function, attribute_of, function_at
from dpdemo.checking.writes import writes_to
from dpdemo.reports.check import Place


def change_outside(
    change: StateChange, evidence: Evidence, call: Call | None, others: Sequence[StateChange] = ()
) -> Repair | None:
    """Write forward without the statements that change state, and the call with them around it.

    Args:
        change: what is changed, and the statement that does so.
        evidence: what the check saw.
        call: a call, whose arguments the line outside has.
        others: what else forward changes, and that goes with it.

    Returns:
        None where no such lines would do the same.

    """
    if change.kind == "parameter" and not change.written and forward_of(evidence, call) is not None:
        return numbers_outside(change, evidence, call, others)
    own = carried(change, evidence, call) if change.kind == "attribute" else None
    home = home_of(change, evidence, others) if own is None else None
    if home is not None and home.owner and not runs_itself(home, change):
        own = call_outside(change, evidence, call)  # a method of a module, which the model's forward calls
    if home is not None and home.owner and _is_filled_twice(change):
        home = None  # the part runs several times in a call, and a GPU would keep the last
    if own is None and home is not None and call is not None:
        same = [one for one in others if one is not change and one.owner == change.owner]
        own = moved(home, [change, *same], evidence, call) if same else None
        own = own or moved(home, [change], evidence, call)
    return own or call_outside(change, evidence, call)


def _is_filled_twice(change: StateChange) -> bool:
    """Whether a call adds several entries to a list or deque."""
    sizes = [re.fullmatch(r"an? (?:list|deque) of (\d+)", text) for text in (change.before, change.single)]
    before, single = (int(one[1]) if one else 0 for one in sizes)
    return change.kind == "container" and single > before + 1


def kept_outside(
    change: StateChange, evidence: Evidence, call: Call | None, others: Sequence[StateChange]
) -> Repair | None:
    """Write the line that leaves a number, or rows, on `self`, as one that keeps each GPU's for outside."""
    home = home_of(change, evidence, [one for one in others if one.kind == "attribute"])
    is_number = re.fullmatch(r"-?[\d.]+(e[-+]\d+)?", change.single) is not None
    is_rows = call is not None and change.rows == call.rows
    if home is None or not (is_number or is_rows):
        return None
    last = change.path.rpartition(".")[2]
    for name, one in home.methods.items():
        found = writes_to(one, last) if name != "__init__" else []
        method = read_method(evidence, call, one, home.owner) if len(found) == 1 else None
        if method is not None:
            whole = forward_of(evidence, call)
            names = names_of(whole) if whole and not home.owner else "result"
            readers = _readers(last, one, home, evidence) if is_rows else []
            return assigned_by_each_gpu(
                method, found[0], home.owners, home.methods, names, is_rows=is_rows, readers=readers
            )
    return None


def _readers(name: str, writer: Function, home: Home, evidence: Evidence) -> list[tuple[Function, str]]:
    """List the other methods that a plain call runs and that read an attribute, each with its GPU's code."""
    return [
        (one, device_at(Place(one.file, one.node.lineno), evidence))
        for one in home.methods.values()
        if one.node is not writer.node
        and is_entered(one, evidence)
        and reads_of(Place(one.file, one.node.lineno), name)
    ]


def mode_outside(change: StateChange, evidence: Evidence, call: Call | None) -> Repair | None:
    """Write forward without the lines that put a module in another mode, and those before the call."""
    whole = forward_of(evidence, call)
    path = change.path.removesuffix("training").removesuffix(".")
    if whole is None:
        return None
    module = attribute_of(path, whole.me) if path else whole.me
    found = [
        one
        for one in whole.function.statements()
        if isinstance(one, ast.Expr) and re.match(rf"{re.escape(module)}\.(eval|train)\(", ast.unparse(one))
    ]
    return taken_out(whole, found, set(), [""], names_of(whole), is_first=True)


def made_before(change: StateChange, evidence: Evidence, call: Call) -> Repair | None:
    """Write the line that wraps a model whose forward makes a part of it, with a plain call before it."""
    wraps = "model = nn.DataParallel(model)"
    once = f"{call_of(call)}   # once, plainly: then the model has `{change.path}`"
    place = change.place or forward_place(evidence)
    return Repair(place, wraps, f"{once}\n{wraps}") if place else None


def statement_outside(change: StateChange) -> str:
    """Write the line that changes state as it is written after the call, outside of forward."""
    module = attribute_of(change.owner, "model.module") if change.owner else "model.module"
    return re.sub(r"\bself\b", module, change.written)


def reads_of(forward: Place | None, name: str) -> bool:
    """Whether forward reads an attribute of the model that it may have set in an earlier call."""
    function = function_at(forward)
    nodes = ast.walk(function.node) if function else ()
    return any(
        isinstance(one, ast.Attribute) and one.attr == name and isinstance(one.ctx, ast.Load) for one in nodes
    )

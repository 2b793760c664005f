"""Results with the batch on another dimension: returned with it first, and turned back behind the call."""

import ast
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from dpdemo.checking.looking import is_batch
from dpdemo.checking.rewriting.calling import result_names
from dpdemo.checking.rewriting.edits import Edits
from dpdemo.checking.rewriting.results import part_at, whole_return
from dpdemo.checking.source import in_brackets
from dpdemo.reports.check import Change, Place

Shapes = Mapping[str, tuple[int, ...] | None]


class Turned(NamedTuple):
    """Forward with results turned, and the lines behind its call that turn them back."""

    changes: tuple[Change, ...]
    names: str
    """What the program calls what forward returns."""
    then: tuple[str, ...]


def pair_of_states(path: str, alone: Shapes, dim: int, rows: int) -> str:
    """Name the tuple that a state is in, as an LSTM's, where all in it have the batch on that dimension."""
    found = re.fullmatch(r"(.*)(\[|\.)(\w+|'\w+')\]?", path)
    parent, opening = (found[1], found[2]) if found else ("", "[")
    inside = [shape or () for name, shape in alone.items() if name.startswith(f"{parent}{opening}")]
    return parent if parent and all(is_batch(shape, dim, rows) for shape in inside) else path


def turned_results(place: Place | None, subjects: Collection[str], alone: Shapes, turn: str) -> Turned | None:
    """Write parts of forward's result with a method called on each, in `return` or in lines before it.

    Args:
        place: where forward is defined.
        subjects: the paths of the parts: of a tensor, or of a tuple of tensors.
        alone: the shapes of one GPU's result, by path.
        turn: the call that turns one, which turns it back as well.

    Returns:
        None where a part is not written out, and the whole is no call.

    """
    end = whole_return(place)
    if end is None:
        return None
    if isinstance(end[2], ast.Call) and all(re.fullmatch(r"\[\d+\]", one) for one in subjects):
        return _parts_of_a_call(place, set(subjects), alone, turn)
    edits, names, then = Edits(end[0].file), result_names(end[2]), []
    for path in dict.fromkeys(subjects):
        part = part_at(place, path)
        if part is None or part.path != path:
            return None
        edits.replace(part.node, _turned(part.text, turn, _kind_of(path, alone)))
        then.append(_turned_back(path, names, turn, _kind_of(path, alone)))
    changes = edits.changes()
    return Turned(changes, names, tuple(then)) if changes and all(then) else None


def _parts_of_a_call(place: Place | None, subjects: set[str], alone: Shapes, turn: str) -> Turned | None:
    """Write `return self.rnn(x)` in two lines, the second with parts of its result turned."""
    part = part_at(place, "")
    tops = [found[0] for path in alone if (found := re.match(r"\[\d+\]", path))]
    if part is None or not isinstance(part.statement, ast.Return) or len(tops) < len(alone):
        return None
    steps = list(dict.fromkeys(tops))
    names = ", ".join(f"result_{step[1:-1]}" for step in steps)
    written = [
        _turned(f"result{step}", turn, _kind_of(step, alone)) if step in subjects else f"result{step}"
        for step in steps
    ]
    own = part.own(", ".join(written))
    change = own._replace(after=f"result = {part.text}\n{own.after}").as_change()
    back = [_turned_back(step, names, turn, _kind_of(step, alone)) for step in steps if step in subjects]
    return Turned((change,), names, tuple(back))


def _turned(text: str, turn: str, kind: str) -> str:
    value = in_brackets(text)
    if kind == "dict":
        return f"{{key: part{turn} for key, part in {value}.items()}}"
    if kind == "named":
        return f"{value}._make(part{turn} for part in {value})"
    return f"tuple(part{turn} for part in {value})" if kind == "tuple" else f"{value}{turn}"


def _kind_of(path: str, alone: Shapes) -> str:
    """Say what holds the tensors at a path of the result: "" where it is one itself."""
    if path in alone:
        return ""
    kinds = {"['": "dict", ".": "named"}
    inside = [name.removeprefix(path) for name in alone if name.startswith(path)]
    return next(
        (kind for step, kind in kinds.items() if any(one.startswith(step) for one in inside)), "tuple"
    )


def _turned_back(path: str, names: str, turn: str, kind: str) -> str:
    """Write the line behind the call; "" where the part lies too deep for one."""
    field = re.fullmatch(r"\.(\w+)", path)
    if field and "," not in names:
        turned = _turned(f"{names}{path}", turn, kind)
        return f"{names} = {names}._replace({field[1]}={turned})"
    target = outside_name(path, names)
    return f"{target} = {_turned(target, turn, kind)}" if target else ""


def outside_name(path: str, names: str) -> str:
    """Write what a part of the result is called behind the call; "" where it cannot be given a value."""
    several = names.split(", ")
    if found := re.fullmatch(r"\[(\d+)\]", path):
        return several[int(found[1])] if len(several) > int(found[1]) else ""
    return f"{names}{path}" if path == "" or re.fullmatch(r"\['\w+'\]", path) else ""

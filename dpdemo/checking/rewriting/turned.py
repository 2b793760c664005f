"""Results with the batch on another dimension: returned with it first, and turned back behind the call."""

import re
from collections.abc import Iterable, Mapping
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
    parent = path.rpartition("[")[0]
    inside = [shape or () for name, shape in alone.items() if name.startswith(f"{parent}[")]
    return parent if parent and all(is_batch(shape, dim, rows) for shape in inside) else path


def turned_results(place: Place | None, subjects: Iterable[str], alone: Shapes, turn: str) -> Turned | None:
    """Write parts of forward's result with a method called on each, in `return` or in lines before it.

    Args:
        place: where forward is defined.
        subjects: the paths of the parts: of a tensor, or of a tuple of tensors.
        alone: the shapes of one GPU's result, by path.
        turn: the call that turns one, which turns it back as well.

    Returns:
        None where a part is not written out.

    """
    end = whole_return(place)
    if end is None:
        return None
    edits, names, then = Edits(end[0].file), result_names(end[2]), []
    for path in dict.fromkeys(subjects):
        part = part_at(place, path)
        if part is None or part.path != path:
            return None
        edits.replace(part.node, _turned(part.text, turn, is_tuple=path not in alone))
        then.append(_turned_back(path, names, turn, is_tuple=path not in alone))
    changes = edits.changes()
    return Turned(changes, names, tuple(then)) if changes and all(then) else None


def _turned(text: str, turn: str, *, is_tuple: bool) -> str:
    value = in_brackets(text)
    return f"tuple(part{turn} for part in {value})" if is_tuple else f"{value}{turn}"


def _turned_back(path: str, names: str, turn: str, *, is_tuple: bool) -> str:
    """Write the line behind the call; "" where the part lies too deep for one."""
    several = names.split(", ")
    if found := re.fullmatch(r"\[(\d+)\]", path):
        if len(several) <= int(found[1]):
            return ""
        target = several[int(found[1])]
    elif field := re.fullmatch(r"\.(\w+)", path):
        turned = _turned(f"{names}{path}", turn, is_tuple=is_tuple)
        return f"{names} = {names}._replace({field[1]}={turned})" if len(several) == 1 else ""
    elif path == "" or re.fullmatch(r"\['\w+'\]", path):
        target = f"{names}{path}"
    else:
        return ""
    return f"{target} = {_turned(target, turn, is_tuple=is_tuple)}"

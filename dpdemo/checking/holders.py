"""What containers, objects and functions on a model hold: tensors, modules, and what stands around these."""

import argparse
import functools
import sys
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.distributions import Distribution, Transform

from dpdemo.checking.evidence import MIXED
from dpdemo.models.frames import is_users
from dpdemo.observation.tree import flatten


def layout(value: object) -> str:
    """Say what a container is and what alone it holds; "" where it is none that PyTorch's own can replace."""
    if type(value) not in (list, tuple, dict):
        return ""
    parts = list(value.values() if isinstance(value, dict) else value)  # type: ignore[call-overload] # these three
    inner = [part for part in parts if type(part) in (list, tuple)]
    if inner and inner == parts and not isinstance(value, dict):
        within = {layout(part).partition(" of ")[2] for part in inner}
        return f"lists of {within.pop() if len(within) == 1 else 'others'}"
    for kind, name in ((nn.Parameter, "parameters"), (torch.Tensor, "tensors"), (nn.Module, "modules")):
        if any(isinstance(part, kind) for part in parts) and all(
            isinstance(part, kind) or part is None for part in parts
        ):
            are_names = isinstance(value, dict) and all(_is_name(key) for key in value)
            return f"{'names' if are_names else type(value).__name__} of {name}"
    are_tuples = bool(parts) and all(isinstance(part, tuple) for part in parts)
    return f"{type(value).__name__} of {'tuples' if are_tuples else 'others'}"


def _is_name(key: object) -> bool:
    """Whether a ModuleDict takes a key."""
    return isinstance(key, str) and bool(key) and "." not in key and not hasattr(nn.ModuleDict, key)


def tensors_of(value: object, registered: set[int]) -> tuple[str, ...]:
    """Name the tensors that an object, or the first in a container, has; of a function, those around it."""
    for _, holder in flatten(value):
        if isinstance(holder, (nn.Module, torch.Tensor)):
            return ()
        names = tuple(name for name, _ in tensors_around(holder, registered) if name)
        if names := names or _tensors_inside(holder):
            return names
    return ()


def _tensors_inside(holder: object, depth: int = 0) -> tuple[str, ...]:
    """Name the tensors of the first object that has any: of this one, or of what it holds."""
    held = attributes(holder)
    names = tuple(name for name, part in held.items() if isinstance(part, torch.Tensor))
    parts = held.values() if depth < _DEEPEST else ()
    objects = [one for one in parts if is_looked_into(one) and not isinstance(one, nn.Module)]
    return names or next((found for one in objects if (found := _tensors_inside(one, depth + 1))), ())


def tensors_around(
    function: object, registered: set[int], depth: int = 0
) -> Iterator[tuple[str, torch.Tensor]]:
    """List the tensors, but for the model's, that a function has from around it, or as fixed arguments.

    Also those of functions that it has from there.
    """
    if isinstance(function, functools.partial):
        given = (*function.args, *function.keywords.values())
        yield from (("", one) for one in given if isinstance(one, torch.Tensor) and id(one) not in registered)
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None) or ()
    for name, cell in zip(getattr(code, "co_freevars", ()), cells, strict=False):
        try:
            value = cell.cell_contents
        except ValueError:  # it is empty as yet
            continue
        if isinstance(value, torch.Tensor) and id(value) not in registered:
            yield name, value
        inner = list(value) if isinstance(value, (list, tuple)) else [value]
        for one in inner if depth < _DEEPEST else ():
            if isinstance(one, (types.FunctionType, functools.partial)):
                yield from tensors_around(one, registered, depth + 1)


def nesting(value: object, tree: dict[int, str]) -> tuple[str, ...]:
    """Name what stands around tensors, or modules of the model, level by level.

    Where levels are mixed, or an object has more than one, `MIXED` and the names of all classes; () where
    nothing is found.
    """
    found: list[str] = []
    parts = [value]
    while parts and len(found) <= _DEEPEST:
        if any(id(part) in tree or isinstance(part, torch.Tensor) for part in parts):
            is_mixed = "object" in found[:-1] or any(_mixed(part, tree) for part in parts if _kind_of(part))
            return _mixed(value, tree) if is_mixed else tuple(found)
        kinds = {_kind_of(part) for part in parts}
        if len(kinds) != 1 or "" in kinds:
            return _mixed(value, tree)
        found += kinds
        parts = [inner for part in parts for inner in _parts_of(part)]
    return ()


def _mixed(value: object, tree: dict[int, str]) -> tuple[str, ...]:
    """Name the classes of all that is around tensors and modules of the model, wherever it stands."""
    names: dict[str, None] = {}
    seen: dict[int, object] = {}
    is_found = False
    parts = [(value, 0)]
    while parts:
        part, depth = parts.pop()
        kind = _kind_of(part)
        is_found = is_found or id(part) in tree or isinstance(part, torch.Tensor)
        if not kind or depth > _DEEPEST or id(part) in seen:
            continue
        seen[id(part)] = part
        names[type(part).__name__ if kind == "object" else kind] = None
        parts += [(inner, depth + 1) for inner in _parts_of(part)]
    return (MIXED, *names) if is_found else ()


_DEEPEST = 3


def _kind_of(value: object) -> str:
    """Name a container, or an object that is looked into and has attributes; "" of all else."""
    if isinstance(value, (nn.Module, torch.Tensor, type)):
        return ""
    for kind in (list, dict, tuple):
        if isinstance(value, kind):
            return "namedtuple" if hasattr(value, "_fields") else kind.__name__
    return "object" if hasattr(value, "__dict__") and is_looked_into(value) else ""


def _parts_of(value: Any) -> list[object]:
    """List what is in a container, or the attributes of an object."""
    if isinstance(value, (list, tuple)):
        return list(value)
    return list((value if isinstance(value, dict) else vars(value)).values())


def attributes(value: object) -> dict[str, Any]:
    """List what an object has: in its `__dict__`, and of a class of the user's in `__slots__`."""
    slots = (vars(kind).get("__slots__", ()) for kind in type(value).__mro__ if is_users_class(kind))
    names = [name for one in slots for name in ((one,) if isinstance(one, str) else one)]
    held = {name: getattr(value, name) for name in names if name != "__dict__" and hasattr(value, name)}
    return held | getattr(value, "__dict__", {})


def is_changeable(value: object) -> bool:
    """Whether it may be changed where it is: a container, or an object of the user's with attributes."""
    is_object = is_of_users(value) and (hasattr(value, "__dict__") or bool(attributes(value)))
    return isinstance(value, (list, dict, set, deque)) or is_object


def is_array(value: object) -> bool:
    """Whether it is an array of numbers of NumPy's, which need not be installed."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray) and not value.dtype.hasobject


def is_code(value: object) -> bool:
    """Whether it is a function, or stands for one; an object of the user's that can be called has a state."""
    return callable(value) and not is_of_users(value)


def is_of_users(value: object) -> bool:
    """Whether it is of a class of the user's, or of one for any attributes."""
    return isinstance(value, (types.SimpleNamespace, argparse.Namespace)) or is_users_class(type(value))


def is_looked_into(value: object) -> bool:
    """Whether tensors are looked for in it: an object of the user's, or one of `torch.distributions`.

    All else of PyTorch's is its own affair.
    """
    return is_of_users(value) or isinstance(value, (Distribution, Transform))


def is_users_class(kind: type) -> bool:
    """Whether a class is defined in a file of the user's, or in a notebook."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind.__module__ == "__main__" or (file is not None and is_users(file))

"""Naming and describing the leaves of arguments and results."""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from dpdemo.checking.evidence import Leaf
from dpdemo.checking.holders import attributes
from dpdemo.models.inputs import is_repeated, length_of
from dpdemo.observation.tree import entries, flatten

_PLAIN = (str, bytes, int, float, bool, complex, type(None), torch.dtype, torch.device, torch.Size)


_methods: WeakKeyDictionary[FunctionType, list[str]] = WeakKeyDictionary()
"""The names of methods' arguments: each copy of a model asks for those of the same forward."""


def argument_names(forward: Callable[..., object], num_positional: int) -> list[str]:
    """Name positional arguments as `forward` does."""
    if isinstance(forward, MethodType) and type(forward.__func__) is FunctionType:
        names = _methods.get(forward.__func__)
        if names is None:
            names = _methods[forward.__func__] = _positional(forward)
    else:
        names = _positional(forward)
    return [names[i] if i < len(names) else f"argument {i + 1}" for i in range(num_positional)]


def _positional(forward: Callable[..., object]) -> list[str]:
    try:
        known = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        return []
    return [one.name for one in known if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]


def named(forward: Callable[..., object], args: Any, kwargs: Any) -> list[tuple[str, object]]:
    """Pair arguments with their names."""
    return [*zip(argument_names(forward, len(args)), args, strict=True), *kwargs.items()]


def flatten_arguments(forward: Callable[..., object], args: object, kwargs: object) -> list[tuple[str, Any]]:
    """List the leaves of a call's arguments with their paths."""
    return [found for name, value in named(forward, args, kwargs) for found in flatten(value, name)]


def describe(path: str, value: object) -> Leaf:
    """Note what a rule may want to know of a leaf."""
    kind = type(value).__name__
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return Leaf(path, kind, tuple(value.shape), str(value.device), dtype, repeated=is_repeated(value))
    if isinstance(value, _PLAIN):
        return Leaf(path, kind, text=str(value)[:80], length=len(value) if isinstance(value, str) else None)
    return Leaf(
        path,
        kind,
        dtype=_numpys(value),
        home=_home(type(value)),
        length=length_of(value),
        tensors_inside=_tensors_inside(value),
        numbers_inside=tuple(_numbers_inside(value)),
        is_mapping=isinstance(value, Mapping),
    )


def _numpys(value: object) -> str:
    """Name the type of an array's elements: "object" and "str" are none that a tensor can have."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return {"O": "object", "U": "str", "S": "str"}.get(kind, str(getattr(value, "dtype", "")))


def _home(kind: type) -> str:
    """Name the module that a class can be imported from by its name; "" where there is none."""
    is_there = vars(sys.modules.get(kind.__module__, object)).get(kind.__name__) is kind
    return kind.__module__ if is_there else ""


def describe_all(pairs: list[tuple[str, object]]) -> tuple[Leaf, ...]:
    """Describe a list of leaves."""
    return tuple(describe(path, value) for path, value in pairs)


def _tensors_inside(value: object) -> tuple[str, ...]:
    if isinstance(value, nn.Module):
        return ()
    inside = dict(value) if isinstance(value, Mapping) else attributes(value)
    found = []
    for key, part in inside.items():
        for path, leaf in flatten(part, str(key)):
            if isinstance(leaf, torch.Tensor):
                found.append(f"{path} on {leaf.device}")
    return tuple(found)


def _numbers_inside(value: object) -> Iterator[tuple[str, int]]:
    """List the attributes of an object that a tensor can be made of, with their lengths."""
    for name, part in attributes(value).items() if not isinstance(value, nn.Module) else ():
        is_list = isinstance(part, list) and len(part) > 1
        kinds = {_kind_of_number(one) for one in part} if is_list else set()
        if len(kinds) == 1 and None not in kinds:
            yield name, len(part)


def _kind_of_number(value: object) -> str | None:
    """Say what number it is, or how many it holds; None of all else."""
    if isinstance(value, (list, tuple)):
        kinds = {_kind_of_number(one) for one in value}
        return f"{len(value)} of {kinds.pop()}" if len(kinds) == 1 and None not in kinds else None
    return type(value).__name__ if isinstance(value, (int, float)) else None


def structure(value: object) -> str:
    """Write the structure of a result in one line: `{y: Tensor(2d), names: [str ×2]}`."""
    if isinstance(value, torch.Tensor):
        return f"Tensor({value.dim()}d)"
    if value is None:
        return "None"
    parts = entries(value)
    if parts is None:
        return type(value).__name__
    inner = [structure(part) for _, part in parts]
    own_name = "" if type(value) in (dict, list, tuple) else type(value).__name__
    if isinstance(value, dict):
        return (
            own_name + "{" + ", ".join(f"{key}: {text}" for key, text in zip(value, inner, strict=True)) + "}"
        )
    text = f"{inner[0]} ×{len(inner)}" if len(inner) > 1 and len(set(inner)) == 1 else ", ".join(inner)
    return own_name + (f"[{text}]" if isinstance(value, list) else f"({text})")

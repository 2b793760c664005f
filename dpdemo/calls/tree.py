"""Walking through arguments and results as scatter and gather do: into tuples, lists and dicts.

torch/nn/parallel/scatter_gather.py opens named tuples, tuples, lists and dicts, of subclasses too, and
nothing else; torch.utils._pytree opens other classes, by their exact type.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch


def entries(value: object) -> list[tuple[object, object]] | None:
    """Open a container as scatter does: (key, part) of each part; None for what it does not open."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if isinstance(value, (list, tuple)) and len(value) > 0 and not isinstance(value, torch.Size):
        return list(enumerate(value))
    if isinstance(value, dict) and len(value) > 0:
        return list(value.items())
    return None


def text_of(key: object, write: Callable[[object], str] = str) -> str:
    """Write a key; one of a class that cannot be written is named by its class."""
    try:
        return write(key)
    except Exception:  # noqa: BLE001 - a user's own class
        return type(key).__name__


def flatten(value: object, path: str = "") -> list[tuple[str, Any]]:
    """List the leaves of a value with their paths, written as Python does: `[0]['boxes']`, `.field`."""
    parts = entries(value)
    if parts is None:
        return [(path, value)]
    found = []
    for key, part in parts:
        step = f".{key}" if hasattr(value, "_fields") else f"[{text_of(key, repr)}]"
        found += flatten(part, path + step)
    return found


def named_tensors(value: object, path: str = "") -> list[tuple[str, torch.Tensor]]:
    """List the tensors of a structure by path: a lone one has the path "", `out["logits"]` has "logits"."""
    if isinstance(value, torch.Tensor):
        return [(path, value)]
    if isinstance(value, tuple):
        value = tuple(value)  # without the names of a named one
    found = []
    for key, part in entries(value) or []:
        found += named_tensors(part, f"{path}.{text_of(key)}" if path else text_of(key))
    return found


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """List the tensors of a structure."""
    return (leaf for _, leaf in flatten(value) if isinstance(leaf, torch.Tensor))


def rebuild(value: object, change: Callable[[Any], object]) -> Any:
    """Build the same structure with each leaf replaced by `change(leaf)`, in the order of `flatten`."""
    parts = entries(value)
    if parts is None:
        return change(value)
    return with_parts(value, [rebuild(part, change) for _, part in parts])


def with_parts(value: Any, new: list[Any]) -> Any:
    """Build a container like `value` from new parts, whatever its class wants to be made of."""
    if isinstance(value, tuple):
        is_torchs = hasattr(value, "n_fields")  # as of torch.max: those are made one way only
        return type(value)(new) if is_torchs else tuple.__new__(type(value), new)
    twin = _copied(value)
    for key, part in zip(value if isinstance(value, dict) else range(len(value)), new, strict=True):
        twin[key] = part
    return twin


def _copied(value: Any) -> Any:
    """Copy a list or dict; of a class that cannot be copied, by what it holds and has as attributes.

    Such is an OrderedDict that is a dataclass with fields that must be given, as of diffusers' outputs.
    """
    try:
        return copy.copy(value)
    except Exception:  # noqa: BLE001 - whatever a user's class says to being copied
        kind: Any = type(value)
        twin = kind.__new__(kind)
        vars(twin).update(vars(value))
        if isinstance(value, dict):
            for key, part in value.items():
                super(kind, twin).__setitem__(key, part)
        else:
            super(kind, twin).extend(value)
        return twin

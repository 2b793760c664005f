"""Walking through arguments and results as scatter and gather do: into tuples, lists and dicts."""

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from dpdemo.preflight.evidence import Leaf

_PLAIN = (str, bytes, int, float, bool, complex, type(None), torch.dtype, torch.device, torch.Size)


def parts_of(value: Any) -> list[tuple[str, Any]] | None:
    """Open a container as scatter does: (how to write the step, part); None for what it does not open."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{name}", part) for name, part in zip(value._fields, value, strict=True)]
    if isinstance(value, (list, tuple)) and len(value) > 0 and not isinstance(value, torch.Size):
        return [(f"[{index}]", part) for index, part in enumerate(value)]
    if isinstance(value, dict) and len(value) > 0:
        return [(f"[{key!r}]", part) for key, part in value.items()]
    return None


def flatten(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """List the leaves of a value with their paths."""
    parts = parts_of(value)
    if parts is None:
        return [(path, value)]
    return [found for step, part in parts for found in flatten(part, path + step)]


def rebuild(value: Any, change: Callable[[str, Any], Any], path: str = "") -> Any:
    """Build the same structure with each leaf replaced by `change(path, leaf)`."""
    parts = parts_of(value)
    if parts is None:
        return change(path, value)
    return with_parts(value, [rebuild(part, change, path + step) for step, part in parts])


def with_parts(value: Any, new: list[Any]) -> Any:
    """Build a container like `value` from new parts, whatever its class wants to be made of."""
    if isinstance(value, tuple):
        is_torchs = hasattr(value, "n_fields")  # as of torch.max: those are made one way only
        return type(value)(new) if is_torchs else tuple.__new__(type(value), new)
    twin = copy.copy(value)
    for key, part in zip(value if isinstance(value, dict) else range(len(value)), new, strict=True):
        twin[key] = part
    return twin


def argument_names(forward: Callable[..., Any], num_positional: int) -> list[str]:
    """Name positional arguments as `forward` does."""
    try:
        known = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        known = []
    names = [one.name for one in known if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return [names[i] if i < len(names) else f"argument {i + 1}" for i in range(num_positional)]


def named(forward: Callable[..., Any], args: Any, kwargs: Any) -> list[tuple[str, Any]]:
    """Pair arguments with their names."""
    return [*zip(argument_names(forward, len(args)), args, strict=True), *kwargs.items()]


def flatten_arguments(forward: Callable[..., Any], args: Any, kwargs: Any) -> list[tuple[str, Any]]:
    """List the leaves of a call's arguments with their paths."""
    return [found for name, value in named(forward, args, kwargs) for found in flatten(value, name)]


def describe(path: str, value: Any) -> Leaf:
    """Note what a rule may want to know of a leaf."""
    kind = type(value).__name__
    if isinstance(value, torch.Tensor):
        return Leaf(
            path, kind, tuple(value.shape), str(value.device), str(value.dtype).removeprefix("torch.")
        )
    if isinstance(value, _PLAIN):
        return Leaf(path, kind, text=str(value)[:80], length=len(value) if isinstance(value, str) else None)
    return Leaf(
        path,
        kind,
        length=length_of(value),
        tensors_inside=_tensors_inside(value),
        mutable=not callable(value),
    )


def describe_all(pairs: list[tuple[str, Any]]) -> tuple[Leaf, ...]:
    """Describe a list of leaves."""
    return tuple(describe(path, value) for path, value in pairs)


def length_of(value: Any) -> int | None:
    """Ask a value for its length; None where it has none to tell."""
    try:
        return len(value)
    except Exception:  # noqa: BLE001 - a user's own __len__
        return None


def _tensors_inside(value: Any) -> tuple[str, ...]:
    if isinstance(value, nn.Module):
        return ()
    inside = dict(value) if isinstance(value, Mapping) else getattr(value, "__dict__", {})
    found = []
    for key, part in inside.items():
        for path, leaf in flatten(part, str(key)):
            if isinstance(leaf, torch.Tensor):
                found.append(f"{path} on {leaf.device}")
    return tuple(found)


def structure(value: Any) -> str:
    """Write the structure of a result in one line: `{y: Tensor(2d), names: [str ×2]}`."""
    if isinstance(value, torch.Tensor):
        return f"Tensor({value.dim()}d)"
    if value is None:
        return "None"
    parts = parts_of(value)
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

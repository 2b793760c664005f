"""Naming and describing the leaves of arguments and results."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from dpdemo.calls.tree import entries, flatten, rebuild, text_of
from dpdemo.calls.unseen import on_cpu, unseen
from dpdemo.checking.evidence import Leaf
from dpdemo.checking.observing.closeness import name_of
from dpdemo.checking.observing.holders import attributes, is_array
from dpdemo.models.inputs import Arguments
from dpdemo.models.rows import is_repeated, length_of

_PLAIN = (str, bytes, int, float, bool, complex, type(None), torch.dtype, torch.device, torch.Size)


def argument_names(forward: Callable[..., object], num_positional: int) -> list[str]:
    """Name positional arguments as `forward` does."""
    names = [parameter.name for parameter in positional(forward)]
    return [names[i] if i < len(names) else f"argument {i + 1}" for i in range(num_positional)]


def positional(forward: Callable[..., object]) -> list[inspect.Parameter]:
    """List the parameters that can be given by position."""
    try:
        known = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        return []
    return [
        parameter
        for parameter in known
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]


def named(forward: Callable[..., object], args: Any, kwargs: Any) -> list[tuple[str, object]]:
    """Pair arguments with their names."""
    return [*zip(argument_names(forward, len(args)), args, strict=True), *kwargs.items()]


def flatten_arguments(forward: Callable[..., object], args: object, kwargs: object) -> list[tuple[str, Any]]:
    """List the leaves of a call's arguments with their paths."""
    return [found for name, value in named(forward, args, kwargs) for found in flatten(value, name)]


def rebuild_arguments(
    forward: Callable[..., object], given: Arguments, change: Callable[[str, Any], object]
) -> Arguments:
    """Rebuild a call's arguments, with `change(path, leaf)` in place of each leaf."""
    paths = iter([path for path, _ in flatten_arguments(forward, *given)])

    def changed(leaf: Any) -> object:
        return change(next(paths), leaf)

    args, kwargs = given
    return rebuild(args, changed) if args else (), rebuild(kwargs, changed) if kwargs else {}


def describe(path: str, value: Any) -> Leaf:
    """Note what a rule may want to know of a leaf."""
    kind = type(value).__name__
    if isinstance(value, torch.Tensor):
        shape, device, dtype = tuple(value.shape), str(value.device), name_of(value.dtype)
        sums, climb = _counted(value)
        repeated = is_repeated(value)
        return Leaf(path, kind, shape, device, dtype, adds_up_to=sums, climb=climb, repeated=repeated)
    if isinstance(value, _PLAIN):
        return Leaf(path, kind, text=str(value)[:80], length=len(value) if isinstance(value, str) else None)
    counts: tuple[int, ...] = ()
    is_row = is_array(value) and value.dtype.kind in "iu" and value.ndim == 1
    if is_row and 2 <= value.size <= _MOST_COUNTS:
        counts = int(value.sum()), int(value[-1])
    dtype, length, inside = _numpys(value), length_of(value), _tensors_inside(value)
    return Leaf(path, kind, dtype=dtype, length=length, tensors_inside=inside, adds_up_to=counts)


_MOST_COUNTS = 4096


def _counted(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, int] | None]:
    """Return what whole numbers add up to, and how they climb, as the fields of `Leaf` have it."""
    is_whole = tensor.dtype in {torch.int32, torch.int64} and tensor.layout == torch.strided
    if (
        not is_whole
        or tensor.dim() not in {1, 2}
        or not 2 <= tensor.numel() <= _MOST_COUNTS
        or tensor.is_meta
    ):
        return (), None
    with unseen(tensor):
        return _sums_of(on_cpu(tensor))


def _sums_of(numbers: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, int] | None]:
    if bool((numbers < 0).any()):
        return (), None
    if numbers.dim() == 2:
        return ((int(numbers.prod(1).sum()),) if numbers.size(1) in {2, 3} else ()), None
    steps, last = numbers.diff(), int(numbers[-1])
    climbs = bool((steps >= 0).all()) and last > numbers[0]
    climb = (last, int(steps.max())) if climbs and not numbers[0] else None
    return (int(numbers.sum()), *((last,) if climbs else ())), climb


def _numpys(value: object) -> str:
    """Name the type of an array's elements: "object" and "str" are none that a tensor can have."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return {"O": "object", "U": "str", "S": "str"}.get(kind, str(getattr(value, "dtype", "")))


def describe_all(pairs: list[tuple[str, object]]) -> tuple[Leaf, ...]:
    """Describe a list of leaves."""
    return tuple(describe(path, value) for path, value in pairs)


def _tensors_inside(value: object) -> tuple[str, ...]:
    if isinstance(value, nn.Module):
        return ()
    inside = dict(value) if isinstance(value, Mapping) else attributes(value)
    found = []
    for key, part in inside.items():
        for path, leaf in flatten(part, text_of(key)):
            if isinstance(leaf, torch.Tensor):
                found.append(f"{path} on {leaf.device}")
    return tuple(found)


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
            own_name
            + "{"
            + ", ".join(f"{text_of(key)}: {text}" for key, text in zip(value, inner, strict=True))
            + "}"
        )
    text = f"{inner[0]} ×{len(inner)}" if len(inner) > 1 and len(set(inner)) == 1 else ", ".join(inner)
    return own_name + (f"[{text}]" if isinstance(value, list) else f"({text})")

"""Snapshots of everything that a model holds, and what changed between two of them."""

import collections
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dpdemo.preflight.evidence import Kind, StateChange
from dpdemo.preflight.places import place_of_attribute

INTERNAL = frozenset(vars(nn.Module())) - {"training"}
_CONTAINERS = (list, dict, set, tuple, collections.deque)
_MAX_PARTS = 200
_ABSENT = "(absent)"


@dataclass(frozen=True, eq=False)
class Held:
    """One piece of state as it was: a copy that later changes cannot reach."""

    kind: Kind
    value: Any
    owner: type


Snapshot = dict[str, Held]


def snapshot(model: nn.Module) -> Snapshot:
    """Copy what a model's modules hold: parameters, buffers, gradients, modes and all other attributes."""
    found: Snapshot = {}
    for prefix, module in model.named_modules():
        dot = f"{prefix}." if prefix else ""
        owner = type(module)
        for name, parameter in module._parameters.items():
            if parameter is not None:
                found[dot + name] = Held("parameter", frozen(parameter), owner)
                gradient = None if parameter.grad is None else frozen(parameter.grad)
                found[f"{dot}{name}.grad"] = Held("gradient", gradient, owner)
        for name, buffer in module._buffers.items():
            found[dot + name] = Held("buffer", frozen(buffer), owner)
        for name, value in vars(module).items():
            if name not in INTERNAL and not is_pytorchs(name, module):
                found[dot + name] = Held(_kind(name, value), frozen(value), owner)
    return found


def is_pytorchs(name: str, module: nn.Module) -> bool:
    """Whether an attribute belongs to PyTorch's own machinery, which knows of replicas."""
    if name == "_flat_weights":
        return isinstance(module, nn.RNNBase)
    return (
        f"{name}_orig" in module._parameters or f"{name}_g" in module._parameters
    )  # weight and spectral norm


def _kind(name: str, value: Any) -> Kind:
    if name == "training":
        return "mode"
    return "container" if isinstance(value, _CONTAINERS) and not isinstance(value, tuple) else "attribute"


def frozen(value: Any, depth: int = 0) -> Any:
    """Copy a value as far as a change in it could matter."""
    if isinstance(value, torch.Tensor):
        # not on its GPU: memory there is being measured
        return value.detach().cpu() if value.is_cuda else value.detach().clone()
    if isinstance(value, (nn.Module, type)) or callable(value):
        return _Identity(value)
    if isinstance(value, dict):
        parts = [(str(key), frozen(part, depth + 1)) for key, part in list(value.items())[:_MAX_PARTS]]
        return (type(value).__name__, len(value), tuple(parts))
    if isinstance(value, _CONTAINERS):
        inside = tuple(frozen(part, depth + 1) for part in list(value)[:_MAX_PARTS])
        return (type(value).__name__, len(value), inside)
    if isinstance(value, (str, bytes, int, float, complex, bool, type(None))):
        return value
    inside = vars(value) if hasattr(value, "__dict__") and depth < 2 else {}
    return (
        type(value).__name__,
        _Identity(value),
        tuple((k, frozen(v, depth + 2)) for k, v in inside.items()),
    )


class _Identity:
    """A thing that is only compared by which one it is; the weak form of equality that copies share."""

    def __init__(self, value: Any) -> None:
        self.type = type(value).__name__
        self.id = id(value)


def same(one: Any, other: Any, *, of_one_model: bool) -> bool:
    """Compare two frozen values; things known only by identity are not compared between two models."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return same_numbers(one, other)
    if isinstance(one, _Identity) and isinstance(other, _Identity):
        return one.id == other.id or (not of_one_model and one.type == other.type)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(
            same(left, right, of_one_model=of_one_model) for left, right in zip(one, other, strict=True)
        )
    if type(one) is not type(other):
        return False
    return bool(one == other) or (one != one and other != other)  # noqa: PLR0124 - NaN


def same_numbers(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same numbers, but for rounding; NaN equals NaN."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    one, other = one.detach().cpu(), other.detach().cpu()
    if torch.equal(one, other):  # nearly always, and much faster than looking at tolerances
        return True
    if not (one.is_floating_point() or one.is_complex()):
        return False
    scale = one.abs().nan_to_num(0, 0, 0).max().item() if one.is_floating_point() else 1.0
    loose = 2e-2 if one.dtype in (torch.float16, torch.bfloat16) else 2e-4
    return bool(torch.allclose(one, other, rtol=loose, atol=loose * scale + 1e-8, equal_nan=True))


def changes(
    before: Snapshot, single: Snapshot | None, parallel: Snapshot, before_parallel: Snapshot
) -> tuple[StateChange, ...]:
    """List what one device's forward changed, or DataParallel's."""
    found = []
    for path in dict.fromkeys((*before, *(single or {}), *parallel)):
        known = [shot[path] for shot in (before, single or {}, parallel) if path in shot]
        absent = Held(known[0].kind, _ABSENT, known[0].owner)
        was, alone, split = (shot.get(path, absent) for shot in (before, single or before, parallel))
        was_parallel = before_parallel.get(path, absent)
        single_changed = not same(was.value, alone.value, of_one_model=True)
        parallel_changed = not same(was_parallel.value, split.value, of_one_model=True)
        if single_changed or parallel_changed:
            name = path.rpartition(".")[2] if known[-1].kind != "gradient" else path.split(".")[-2]
            found.append(
                StateChange(
                    path, known[-1].kind, show(was.value), show(alone.value), show(split.value),
                    single_changed, parallel_changed, same(alone.value, split.value, of_one_model=False),
                    place_of_attribute(known[-1].owner, name), known[-1].owner.__name__,
                )
            )  # fmt: skip
    return tuple(found)


def show(value: Any) -> str:
    """Write a frozen value in a few words."""
    if isinstance(value, torch.Tensor):
        if value.numel() == 1:
            return f"{value.item():.4g}"
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, _Identity):
        return value.type
    if isinstance(value, tuple) and len(value) == 3 and isinstance(value[1], int):
        return f"a {value[0]} of {value[1]}"
    if isinstance(value, tuple):
        return f"a {value[0]}"
    return repr(value)[:40] if value != _ABSENT else "absent"

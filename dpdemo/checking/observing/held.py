"""Attributes of a model's modules besides registered parameters, buffers and submodules."""

import itertools
import re
import types
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from dpdemo.checking.evidence import Holding
from dpdemo.checking.observing.holders import Part, held_by, keys_of, walk
from dpdemo.checking.observing.hooks import functions_of, name_of, unwrapped, users_hooks, values_named_by
from dpdemo.checking.observing.state import attributes_of
from dpdemo.checking.source import place_of_attribute, place_of_function


def held_in(core: nn.Module) -> Iterator[Holding]:
    """List what the modules of a model hold, and the modules outside of it that its functions name."""
    tree = {id(module): path for path, module in core.named_modules()}
    around = _Around(tree, {id(tensor) for tensor in (*core.parameters(), *core.buffers())})
    for path, module in core.named_modules():
        yield from _held_by(path, module, around)
    yield from _named_modules(core, around)


class _Around(NamedTuple):
    """A model's modules by identity, with their paths, and its tensors."""

    tree: dict[int, str]
    registered: set[int]


def _held_by(path: str, module: nn.Module, model: _Around) -> Iterator[Holding]:
    dot = f"{path}." if path else ""
    for name, value in attributes_of(module):
        place = place_of_attribute(type(module), name)
        is_pure = _is_of_modules(value)
        for kind in _kinds(name, value, model, module):
            yield replace(kind, path=dot + name, is_pure=is_pure, place=place)
    for hook in users_hooks(module):
        place = place_of_function(unwrapped(hook))
        yield Holding(path or type(module).__name__, "hook", name_of(hook), place=place)
    for name, parameter in module._parameters.items():
        if parameter is not None and is_lazy(parameter):
            yield Holding(dot + name, "lazy", type(module).__name__)
        elif parameter is not None and (type(parameter) is not nn.Parameter or vars(parameter)):
            place = place_of_attribute(type(module), name)
            yield Holding(
                dot + name, "parameter", type(parameter).__name__, names=tuple(vars(parameter)), place=place
            )


def _named_modules(core: nn.Module, model: _Around) -> Iterator[Holding]:
    """List the modules outside of the model, with weights, that its functions name."""
    found: dict[str, nn.Module] = {}
    for function in functions_of(core):
        for name, value in values_named_by(function):
            if (
                isinstance(value, nn.Module)
                and id(value) not in model.tree
                and any(True for _ in value.parameters())
            ):
                found.setdefault(name, value)
    for name, module in found.items():
        yield Holding(name, "named", type(module).__name__, device=_device_of(module))


def _device_of(module: nn.Module) -> str:
    """Name the device of a module's first weight; "" where it has none."""
    return next((str(parameter.device) for parameter in module.parameters()), "")


def _is_of_modules(value: object) -> bool:
    """Whether a list or a dict can be a ModuleList, or a ModuleDict, as it is."""
    if isinstance(value, dict):
        are_names = all(isinstance(key, str) and key and "." not in key for key in value)
        return (
            are_names
            and not any(hasattr(nn.ModuleDict, key) for key in value)
            and _is_of_modules([*value.values()])
        )
    return isinstance(value, (list, tuple)) and all(isinstance(part, nn.Module) for part in value)


def _kinds(name: str, value: object, model: _Around, module: nn.Module) -> Iterator[Holding]:
    if name == "_compiled_call_impl":
        if value is not None:
            yield Holding("", "compiled")
        return
    parts = list(walk(value))
    found = (_kind_of(part, model) for part in parts)
    yield from itertools.islice(filter(None, found), 1)
    keys = filter(None, (_key_of_model(key, model) for part in parts for key in keys_of(part.value)))
    yield from (Holding("", "keyed", leads_to=key) for key in itertools.islice(keys, 1))
    if isinstance(value, (list, dict, set)) and not isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        yield Holding("", "container", type(value).__name__)


def _key_of_model(key: object, model: _Around) -> str:
    """Describe a key that is a module or a parameter of the model, or the `id` of one; "" for any other."""
    number, what = (key, "the `id` of ") if type(key) is int else (id(key), "")
    if number in model.tree:
        return f"{what}a module"
    return f"{what}a parameter or buffer" if number in model.registered else ""


def _kind_of(part: Part, model: _Around) -> Holding | None:  # noqa: PLR0911 - a kind each
    """Describe how a part of an attribute ties a replica to the original; None if it does not."""
    value, holder = part.value, part.holders[0] if part.holders else None
    if isinstance(value, weakref.ReferenceType) and holder is None:
        value = value()
    if isinstance(value, torch.Tensor):
        is_models = id(value) in model.registered
        if not is_models or (holder is None and part.path):
            kind = "shared" if is_models else "tensor"
            return Holding("", kind, "Tensor", tuple(value.shape), str(value.device), **_way(part))
        leads_to = f"the model's own tensor of shape {tuple(value.shape)}"
        return Holding("", "callable", leads_to=leads_to, **_way(part)) if held_by(holder) else None
    if not isinstance(value, nn.Module):
        return None
    name, is_models = type(value).__name__, id(value) in model.tree
    if holder is None:
        is_wrapper = isinstance(value, nn.DataParallel)
        return None if is_wrapper else Holding("", "module", name, device=_device_of(value))
    if not held_by(holder):
        return Holding("", "holder", name, **_way(part)) if is_models else None
    if is_models:
        return Holding("", "callable", leads_to=f"`{model.tree[id(value)] or name}`", **_way(part))
    if not any(True for _ in (*value.parameters(), *value.buffers())):
        return None
    leads_to = f"a {name} outside of the model"
    return Holding("", "outer", leads_to=leads_to, device=_device_of(value), **_way(part))


def _way(part: Part) -> dict[str, Any]:
    """Name what stands between an attribute and a part of it, and the attribute of an object that has it."""
    if not part.holders:
        return {}
    first = part.holders[0]
    if isinstance(first, types.MethodType):
        return {"holder": f"the bound method {first.__name__}"}
    if held_by(first):
        return {"holder": "a lambda" if getattr(first, "__name__", "") == "<lambda>" else "a function"}
    last = next(holder for holder in reversed(part.holders) if not held_by(holder))
    return {"holder": type(last).__name__, "within": re.findall(r"\.(\w+)", part.path)[-1]}

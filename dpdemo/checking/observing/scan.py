"""Reading what a model is made of, without running it."""

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

from dpdemo.checking.evidence import Held, Norm, Scan
from dpdemo.checking.observing.holders import Part, core_of, held_by, keys_of, lets_wait, walk
from dpdemo.checking.observing.hooks import functions_of, name_of, unwrapped, users_hooks, values_named_by
from dpdemo.checking.observing.leaves import positional
from dpdemo.checking.observing.state import INTERNAL, attributes_of, changeable_parts
from dpdemo.checking.source import place_of_attribute, place_of_function, place_of_part, place_of_return
from dpdemo.models.frames import is_installed, is_users
from dpdemo.results.findings import Place


def scan(model: nn.Module, first: torch.device | None) -> Scan:
    """Read a model; `first` is the GPU that it must be on, None where a script is still to move it."""
    core = core_of(model)
    modules = list(core.named_modules())
    tree = {id(module): path for path, module in modules}
    registered = {id(tensor) for tensor in (*core.parameters(), *core.buffers())}
    around = _Around(tree, registered)
    held = [found for path, module in modules for found in _held_by(path, module, around)]
    held += _named_modules(core, around)
    forward = place_of_function(core.forward)
    return Scan(
        model=type(core).__name__,
        held=tuple(held),
        module_types=tuple((path, _type_of(module)) for path, module in modules),
        flattens_parameters=_mentions(core, "flatten_parameters"),
        forward=forward,
        result=place_of_return(core.forward) or forward,
        wrappers=tuple(path for path, module in model.named_modules() if isinstance(module, nn.DataParallel)),
        frozen=tuple(_frozen_wrappers(model)),
        device_ids=tuple(model.device_ids) if isinstance(model, nn.DataParallel) else (),
        strays=_strays(model, first),
        is_installed=forward is not None and is_installed(forward.file),
        is_spread=len(
            {parameter.device for parameter in core.parameters() if parameter.device.type == "cuda"}
        )
        > 1,
        pads_alone=_mentions(core, "pad_packed_sequence") and not _mentions(core, "total_length"),
        shortened=tuple(
            (path, _made_at(core, path))
            for path, module in modules
            if isinstance(module, nn.Embedding) and module.max_norm is not None
        ),
        is_training=core.training,
        norms=tuple(
            Norm(
                path,
                type(module).__name__,
                module.num_features,
                _made_at(core, path),
                _has_own_forward(module),
                hasattr(module, "__data_parallel_replicate__"),
                any({"clamp", "eps"} <= words for words in _words_of(type(module))),
            )
            for path, module in modules
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.num_features > 1
        ),
        parameters=tuple(name for name, _ in core.named_parameters()),
        required=tuple(
            parameter.name for parameter in positional(core.forward) if parameter.default is parameter.empty
        ),
        together=tuple(tuple(paths) for _, paths in changeable_parts(core) if len(paths) > 1),
        meetings=tuple(_meetings(core)),
    )


def _meetings(model: nn.Module) -> Iterator[str]:
    """List what modules hold where threads wait for each other: a queue, or what is beside a lock."""
    for path, module in model.named_modules():
        held = {name: value for name, value in vars(module).items() if name not in INTERNAL}
        if any(map(lets_wait, held.values())):
            yield from (f"{path}.{name}" if path else name for name in held)


def _has_own_forward(norm: nn.Module) -> bool:
    return type(norm).forward not in {nn.modules.batchnorm._BatchNorm.forward, nn.SyncBatchNorm.forward}


def _made_at(core: nn.Module, path: str) -> Place | None:
    """Find the line of the user's that makes the module at a path, or the one around it."""
    return place_of_part(path, lambda owner: type(core.get_submodule(owner)))


def _frozen_wrappers(model: nn.Module) -> Iterator[str]:
    """List the wrappers in a model that is trained, though they are not."""
    if any(parameter.requires_grad for parameter in model.parameters()):
        for path, module in model.named_modules():
            trained = [parameter.requires_grad for parameter in module.parameters()]
            if isinstance(module, nn.DataParallel) and trained and not any(trained):
                yield path


def _type_of(module: nn.Module) -> str:
    """Name a module by the family that a rule may know it by."""
    families = (
        (nn.SyncBatchNorm, "SyncBatchNorm"), (nn.modules.batchnorm._BatchNorm, "BatchNorm"),
        (nn.modules.instancenorm._InstanceNorm, "InstanceNorm"), (nn.RNNBase, "RNN"),
        (torch.jit.ScriptModule, "ScriptModule"), (nn.ParameterList, "ParameterList"),
        (nn.ParameterDict, "ParameterDict"),
    )  # fmt: skip
    return next((name for kind, name in families if isinstance(module, kind)), type(module).__name__)


class _Around(NamedTuple):
    """What belongs to the model: its modules by identity, with their paths, and its tensors."""

    tree: dict[int, str]
    registered: set[int]


def _held_by(path: str, module: nn.Module, model: _Around) -> Iterator[Held]:
    dot = f"{path}." if path else ""
    for name, value in attributes_of(module):
        place = place_of_attribute(type(module), name)
        is_pure = _is_of_modules(value)
        for kind in _kinds(name, value, model, module):
            yield replace(kind, path=dot + name, is_pure=is_pure, place=place)
    for hook in users_hooks(module):
        place = place_of_function(unwrapped(hook))
        yield Held(path or type(module).__name__, "hook", name_of(hook), place=place)
    for name, parameter in module._parameters.items():
        if parameter is not None and is_lazy(parameter):
            yield Held(dot + name, "lazy", type(module).__name__)
        elif parameter is not None and (type(parameter) is not nn.Parameter or vars(parameter)):
            place = place_of_attribute(type(module), name)
            yield Held(
                dot + name, "parameter", type(parameter).__name__, names=tuple(vars(parameter)), place=place
            )


def _named_modules(core: nn.Module, model: _Around) -> Iterator[Held]:
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
        yield Held(name, "named", type(module).__name__, device=_device_of(module))


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


def _kinds(name: str, value: object, model: _Around, module: nn.Module) -> Iterator[Held]:
    if name == "_compiled_call_impl":
        if value is not None:
            yield Held("", "compiled")
        return
    parts = list(walk(value))
    found = (_kind_of(part, model) for part in parts)
    yield from itertools.islice(filter(None, found), 1)
    keys = filter(None, (_key_of_model(key, model) for part in parts for key in keys_of(part.value)))
    yield from (Held("", "keyed", leads_to=key) for key in itertools.islice(keys, 1))
    if isinstance(value, (list, dict, set)) and not isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        yield Held("", "container", type(value).__name__)


def _key_of_model(key: object, model: _Around) -> str:
    """Describe a key that is a module or a parameter of the model, or the `id` of one; "" for any other."""
    number, what = (key, "the `id` of ") if type(key) is int else (id(key), "")
    if number in model.tree:
        return f"{what}a module"
    return f"{what}a parameter or buffer" if number in model.registered else ""


def _kind_of(part: Part, model: _Around) -> Held | None:  # noqa: PLR0911 - a kind each
    """Describe how a part of an attribute ties a replica to the original; None if it does not."""
    value, holder = part.value, part.holders[0] if part.holders else None
    if isinstance(value, weakref.ReferenceType) and holder is None:
        value = value()
    if isinstance(value, torch.Tensor):
        is_models = id(value) in model.registered
        if not is_models or (holder is None and part.path):
            kind = "shared" if is_models else "tensor"
            return Held("", kind, "Tensor", tuple(value.shape), str(value.device), **_way(part))
        leads_to = f"the model's own tensor of shape {tuple(value.shape)}"
        return Held("", "callable", leads_to=leads_to, **_way(part)) if held_by(holder) else None
    if not isinstance(value, nn.Module):
        return None
    name, is_models = type(value).__name__, id(value) in model.tree
    if holder is None:
        is_wrapper = isinstance(value, nn.DataParallel)
        return None if is_wrapper else Held("", "module", name, device=_device_of(value))
    if not held_by(holder):
        return Held("", "holder", name, **_way(part)) if is_models else None
    if is_models:
        return Held("", "callable", leads_to=f"`{model.tree[id(value)] or name}`", **_way(part))
    if not any(True for _ in (*value.parameters(), *value.buffers())):
        return None
    leads_to = f"a {name} outside of the model"
    return Held("", "outer", leads_to=leads_to, device=_device_of(value), **_way(part))


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


def _strays(model: nn.Module, first: torch.device | None) -> tuple[tuple[str, str], ...]:
    """List what is not on the first GPU of its wrapper; where there is none, of what splits the batch."""
    parts = [
        (f"{path}.module." if path else "", module.module, module.src_device_obj)
        for path, module in model.named_modules()
        if isinstance(module, nn.DataParallel) and module.device_ids
    ]
    if not parts and first is not None:
        parts = [("", model, first)]
    found: list[tuple[str, str]] = []
    for prefix, part, wanted in parts:
        tensors = (*part.named_parameters(), *part.named_buffers())
        placed = [(prefix + name, tensor.device) for name, tensor in tensors]
        if any(device.type != "cpu" for _, device in placed):  # else a script will move it as a whole
            found += [(path, str(device)) for path, device in placed if device != wanted]
    return tuple(found)


def _mentions(core: nn.Module, name: str) -> bool:
    """Return whether a method of any class of the model calls something of this name."""
    kinds = {type(module) for module in core.modules()}
    return any(name in words for kind in kinds for words in _words_of(kind))


def _words_of(kind: type) -> Iterator[set[object]]:
    """List the names that each method of the user's uses: one that is overridden only by way of `super()`.

    Those of keyword arguments are constants of its code.
    """
    for name in {name for cls in kind.__mro__ for name in vars(cls)}:
        for cls in kind.__mro__:
            code = getattr(vars(cls).get(name), "__code__", None)
            if isinstance(code, types.CodeType) and is_users(code.co_filename):
                keywords = (word for const in code.co_consts if isinstance(const, tuple) for word in const)
                words = {*code.co_names, *keywords}
                yield words
                if "super" not in words:
                    break

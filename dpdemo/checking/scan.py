"""Reading what a model is made of, without running it."""

import functools
import sys
import types
import weakref
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from dpdemo.checking.copying import held_by
from dpdemo.checking.evidence import Held, Scan
from dpdemo.checking.holders import attributes, is_looked_into, layout, nesting, tensors_around, tensors_of
from dpdemo.checking.leaves import argument_names
from dpdemo.checking.places import place_of_attribute, place_of_function
from dpdemo.checking.state import HOOKS, INTERNAL, changeable_parts, is_pytorchs
from dpdemo.models.frames import is_users
from dpdemo.observation.tree import flatten


def scan(model: nn.Module, first: torch.device | None) -> Scan:
    """Read a model; `first` is the GPU that it must be on, None where a script is still to move it."""
    core = model.module if isinstance(model, nn.DataParallel) else model
    modules = list(core.named_modules())
    tree = {id(module): path for path, module in modules}
    registered = {id(tensor) for tensor in (*core.parameters(), *core.buffers())}
    held = [found for path, module in modules for found in _held_by(path, module, tree, registered)]
    return Scan(
        model=type(core).__name__,
        held=tuple(held),
        module_types=tuple((path, _type_of(module)) for path, module in modules),
        flattens_parameters=_mentions(core, "flatten_parameters"),
        forward=place_of_function(core.forward),
        wrappers=tuple(path for path, module in model.named_modules() if isinstance(module, nn.DataParallel)),
        frozen=tuple(_frozen_wrappers(model)),
        device_ids=tuple(model.device_ids) if isinstance(model, nn.DataParallel) else (),
        strays=_strays(model, first),
        norms=tuple(
            (path, type(module).__name__, module.num_features)
            for path, module in modules
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.num_features > 1
        ),
        buffers=tuple((name, len(one)) for name, one in core.named_buffers() if one.dim()),
        parameters=tuple(name for name, _ in core.named_parameters()),
        classes=tuple(dict.fromkeys(_home(type(module)) for _, module in modules)),
        inputs=tuple(argument_names(core.forward, 8)),
        numbers=tuple(
            (name, value)
            for _, module in modules
            for name, value in vars(module).items()
            if type(value) is int and value > 1
        ),
        together=tuple(_held_together(core)),
        shortened=tuple(
            (path, module.max_norm, module.norm_type)
            for path, module in modules
            if isinstance(module, nn.Embedding) and module.max_norm is not None
        ),
        is_training=core.training,
        pads_alone=_mentions(core, "pad_packed_sequence") and not _mentions(core, "total_length"),
    )


def _held_together(model: nn.Module) -> Iterator[tuple[str, ...]]:
    """List the paths of each container and object that more than one module has."""
    paths: dict[int, list[str]] = {}
    for path, value in changeable_parts(model):
        paths.setdefault(id(value), []).append(path)
    yield from (tuple(found) for found in paths.values() if len(found) > 1)


def _frozen_wrappers(model: nn.Module) -> Iterator[str]:
    """List the wrappers in a model that is trained, though they are not."""
    if any(one.requires_grad for one in model.parameters()):
        for path, module in model.named_modules():
            trained = [one.requires_grad for one in module.parameters()]
            if isinstance(module, nn.DataParallel) and trained and not any(trained):
                yield path


def _home(kind: type) -> tuple[str, str]:
    """Name a class, and the file that defines it; "" where that is none of the user's."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return kind.__qualname__, file if is_users(file) else ""


def _type_of(module: nn.Module) -> str:
    """Name a module by the family that a rule may know it by."""
    families = (
        (nn.SyncBatchNorm, "SyncBatchNorm"), (nn.modules.batchnorm._BatchNorm, "BatchNorm"),
        (nn.modules.instancenorm._InstanceNorm, "InstanceNorm"), (nn.RNNBase, "RNN"),
        (torch.jit.ScriptModule, "ScriptModule"), (nn.ParameterList, "ParameterList"),
        (nn.ParameterDict, "ParameterDict"),
    )  # fmt: skip
    return next((name for kind, name in families if isinstance(module, kind)), type(module).__name__)


def _held_by(path: str, module: nn.Module, tree: dict[int, str], registered: set[int]) -> Iterator[Held]:
    dot = f"{path}." if path else ""
    for name, value in vars(module).items():
        if name not in INTERNAL and not is_pytorchs(name, module):
            place = place_of_attribute(type(module), name)
            for kind, found in _kinds(name, value, tree, registered, module):
                parts = tensors_of(value, registered), nesting(value, tree)
                yield Held(dot + name, kind, found, place, layout(value), *parts)
    for hooks in HOOKS:
        for hook in getattr(module, hooks, {}).values():
            if is_users_hook(hook):
                function = _unwrapped(hook)
                name = getattr(function, "__qualname__", type(function).__name__)
                yield Held(path or type(module).__name__, "hook", name, place_of_function(function))
    for name, parameter in module._parameters.items():
        if parameter is not None and is_lazy(parameter):
            yield Held(dot + name, "lazy", type(module).__name__)
        elif parameter is not None and (type(parameter) is not nn.Parameter or vars(parameter)):
            extra = ", ".join(vars(parameter))
            detail = f"attribute {extra}" if extra else f"type {type(parameter).__name__}"
            yield Held(dot + name, "parameter", detail, place_of_attribute(type(module), name))


def _kinds(
    name: str, value: object, tree: dict[int, str], registered: set[int], module: nn.Module
) -> Iterator[tuple[str, str]]:
    if name == "_compiled_call_impl":
        if value is not None:
            yield "compiled", ""
        return
    for step, kept in flatten(value):
        leaf = kept() if isinstance(kept, weakref.ReferenceType) else kept
        found = _kind_of(name, leaf, tree, registered, module, is_alone=not step)
        if found is not None:
            yield found
            break
    if isinstance(value, (list, dict, set)) and not isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        yield "container", f"{type(value).__name__} of {len(value)}"


def _kind_of(  # noqa: PLR0913 - what it is, and where
    name: str,
    leaf: object,
    tree: dict[int, str],
    registered: set[int],
    module: nn.Module,
    *,
    is_alone: bool,
) -> tuple[str, str] | None:
    """Say how a part of an attribute ties a replica to the original; None where it does not."""
    if isinstance(leaf, torch.Tensor):
        is_own = is_alone and id(leaf) in registered
        return None if is_own else _tensor(leaf, is_models=id(leaf) in registered)
    if isinstance(leaf, nn.Module) and not isinstance(leaf, nn.DataParallel):
        return "ancestor" if _is_around(leaf, module, tree) else "module", type(leaf).__name__
    if callable(leaf) and not isinstance(leaf, type) and (holder := _closes_over(leaf, tree, registered)):
        shadows = name in ("forward", "__call__")
        return "callable", f"{'a forward' if shadows else _callable_name(leaf)} that holds {holder}"
    for _, around in tensors_around(leaf, registered):
        return "tensor", f"{_callable_name(leaf)} that holds {_described(around)}"
    return next(_inside(leaf, tree, registered), None)


def _tensor(leaf: torch.Tensor, *, is_models: bool) -> tuple[str, str]:
    """Describe a tensor that is held beside the registered ones, or one of these in a list."""
    if is_models:
        return "shared", _shape(leaf).removeprefix("a tensor ")
    return "tensor", _described(leaf)


def _described(tensor: torch.Tensor) -> str:
    return f"{_shape(tensor)} on {tensor.device}"


def _is_around(holder: nn.Module, module: nn.Module, tree: dict[int, str]) -> bool:
    """Whether a module of the model has another one in it."""
    path = tree[id(module)]
    around = tree.get(id(holder), path)
    return around != path and (not around or path.startswith(f"{around}."))


def _inside(
    holder: object, tree: dict[int, str], registered: set[int], depth: int = 0
) -> Iterator[tuple[str, str]]:
    """List the tensors and the model's modules that an object has, and what it holds."""
    if not is_looked_into(holder) or depth > _DEEPEST:
        return
    for name, held in attributes(holder).items():
        for _, part in flatten(held):
            if isinstance(part, torch.Tensor) and id(part) not in registered:
                yield "tensor", f"{_described(part)}, as `{name}` of a {type(holder).__name__}"
            elif isinstance(part, nn.Module) and id(part) in tree:
                yield "holder", f"{type(part).__name__}, as `{name}` of a {type(holder).__name__}"
            elif not isinstance(part, (torch.Tensor, nn.Module)):
                yield from _inside(part, tree, registered, depth + 1)


_DEEPEST = 3
"""So many objects are looked into, one in the other."""


def _shape(tensor: torch.Tensor) -> str:
    return f"a tensor of shape {tuple(tensor.shape)}"


def _callable_name(value: object) -> str:
    if isinstance(value, types.MethodType):
        return f"the bound method {value.__name__}"
    return "a lambda" if getattr(value, "__name__", "") == "<lambda>" else "a function"


def _closes_over(function: object, tree: dict[int, str], registered: set[int], depth: int = 0) -> str:
    """Say which module of the model, or what parameter or buffer, a function holds on to, or nothing."""
    held = held_by(function) or [getattr(function, "__self__", None)]
    for value in held:
        if isinstance(value, nn.Module) and id(value) in tree:
            return f"`{tree[id(value)] or type(value).__name__}`"
        if isinstance(value, torch.Tensor) and id(value) in registered:
            return f"the model's own tensor of shape {tuple(value.shape)}"
        if depth < 3 and callable(value) and not isinstance(value, (nn.Module, type)):
            found = _closes_over(value, tree, registered, depth + 1)
            if found:
                return found
    return ""


def _unwrapped(hook: object) -> object:
    """Take a function out of `functools.partial`."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    return hook


def is_users_hook(hook: object) -> bool:
    """Return whether a hook is neither PyTorch's own, as of weight norm, nor ours."""
    hook = _unwrapped(hook)
    function = getattr(hook, "__func__", hook)
    code = getattr(function, "__code__", None) or getattr(type(hook).__call__, "__code__", None)
    return code is not None and is_users(code.co_filename)


def _strays(model: nn.Module, first: torch.device | None) -> tuple[tuple[str, str], ...]:
    """List what is not on the first GPU of its wrapper; where there is none, of what splits the batch."""
    wrappers = [
        (path, one)
        for path, one in model.named_modules()
        if isinstance(one, nn.DataParallel) and one.device_ids
    ]
    parts = [
        (f"{path}.module." if path else "", one.module, one.src_device_obj) for path, one in wrappers
    ] or ([] if first is None else [("", model, first)])
    found: list[tuple[str, str]] = []
    for prefix, part, wanted in parts:
        tensors = [*part.named_parameters(), *part.named_buffers()]
        if any(tensor.device.type != "cpu" for _, tensor in tensors):  # else a script will move it as a whole
            found += [(prefix + name, str(one.device)) for name, one in tensors if one.device != wanted]
    return tuple(found)


def _words(code: types.CodeType) -> set[str]:
    """List the names that a function uses, those of keyword arguments too."""
    keywords = {word for constant in code.co_consts if isinstance(constant, tuple) for word in constant}
    return {*code.co_names, *(word for word in keywords if isinstance(word, str))}


def _mentions(core: nn.Module, name: str) -> bool:
    """Return whether a method of any class of the model calls something of this name."""
    kinds = {cls for module in core.modules() for cls in type(module).__mro__}
    codes = (getattr(one, "__code__", None) for cls in kinds for one in vars(cls).values())
    return any(
        code is not None and is_users(code.co_filename) and name in _words(code)
        for code in codes
        if isinstance(code, types.CodeType)
    )

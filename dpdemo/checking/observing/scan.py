"""Reading what a model is made of, without running it."""

import types
from collections.abc import Iterator

import torch
from torch import nn

from dpdemo.checking.evidence import Norm, Scan
from dpdemo.checking.observing.held import held_in
from dpdemo.checking.observing.holders import core_of, lets_wait
from dpdemo.checking.observing.leaves import positional
from dpdemo.checking.observing.state import INTERNAL, changeable_parts
from dpdemo.checking.source import place_of_function, place_of_part, place_of_return
from dpdemo.models.frames import is_installed, is_users
from dpdemo.results.findings import Place


def scan(model: nn.Module, first: torch.device | None) -> Scan:
    """Read a model; `first` is the GPU that it must be on, None where a script is still to move it."""
    core = core_of(model)
    modules = list(core.named_modules())
    forward = place_of_function(core.forward)
    gpus = {parameter.device for parameter in core.parameters() if parameter.device.type == "cuda"}
    required = (each.name for each in positional(core.forward) if each.default is each.empty)
    return Scan(
        model=type(core).__name__,
        held=tuple(held_in(core)),
        module_types=tuple((path, _type_of(module)) for path, module in modules),
        flattens_parameters=_mentions(core, "flatten_parameters"),
        forward=forward,
        result=place_of_return(core.forward) or forward,
        wrappers=tuple(path for path, module in model.named_modules() if isinstance(module, nn.DataParallel)),
        frozen=tuple(_frozen_wrappers(model)),
        device_ids=tuple(model.device_ids) if isinstance(model, nn.DataParallel) else (),
        strays=_strays(model, first),
        is_installed=forward is not None and is_installed(forward.file),
        is_spread=len(gpus) > 1,
        pads_alone=_mentions(core, "pad_packed_sequence") and not _mentions(core, "total_length"),
        shortened=tuple(_shortened(core)),
        is_training=core.training,
        norms=tuple(_norms(core)),
        parameters=tuple(name for name, _ in core.named_parameters()),
        required=tuple(required),
        together=tuple(tuple(paths) for _, paths in changeable_parts(core) if len(paths) > 1),
        meetings=tuple(_meetings(core)),
    )


def _shortened(core: nn.Module) -> Iterator[tuple[str, Place | None]]:
    """List the embeddings that shorten their rows in forward."""
    for path, module in core.named_modules():
        if isinstance(module, nn.Embedding) and module.max_norm is not None:
            yield path, _made_at(core, path)


def _norms(core: nn.Module) -> Iterator[Norm]:
    """List the BatchNorm layers."""
    plain = {nn.modules.batchnorm._BatchNorm.forward, nn.SyncBatchNorm.forward}
    for path, module in core.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.num_features > 1:
            yield Norm(
                path,
                type(module).__name__,
                module.num_features,
                _made_at(core, path),
                is_own=type(module).forward not in plain,
                is_told=hasattr(module, "__data_parallel_replicate__"),
                clamps=any({"clamp", "eps"} <= words for words in _words_of(type(module))),
            )


def _meetings(model: nn.Module) -> Iterator[str]:
    """List what modules hold where threads wait for each other: a queue, or what is beside a lock."""
    for path, module in model.named_modules():
        held = {name: value for name, value in vars(module).items() if name not in INTERNAL}
        if any(map(lets_wait, held.values())):
            yield from (f"{path}.{name}" if path else name for name in held)


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

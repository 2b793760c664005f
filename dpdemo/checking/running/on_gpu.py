"""Putting on a GPU what a model holds beside its parameters and buffers, wherever that is."""

import types
from collections.abc import Sequence

import torch
from torch import nn

from dpdemo.checking.observing.holders import attributes, held_by, is_looked_into
from dpdemo.watching.tree import entries, with_parts


def brought_along(model: nn.Module, paths: Sequence[str], gpu: torch.device) -> nn.Module:
    """Put what stands at some paths of a model on a GPU."""
    core = model.module if isinstance(model, nn.DataParallel) else model
    for path in paths:
        owner, _, name = path.rpartition(".")
        holder = core.get_submodule(owner)
        setattr(holder, name, _on_gpu(getattr(holder, name), gpu))
    return model


def _on_gpu(value: object, gpu: torch.device, depth: int = 0) -> object:
    if isinstance(value, torch.Tensor):
        return value.to(gpu)
    if isinstance(value, nn.Module):
        return value.to(gpu)
    if isinstance(value, types.FunctionType):
        for part in held_by(value):
            if isinstance(part, nn.Module):
                part.to(gpu)  # of the copy: a function is copied with the modules that it holds
        return value
    if (parts := entries(value)) is not None:
        return with_parts(value, [_on_gpu(part, gpu, depth) for _, part in parts])
    if is_looked_into(value) and not isinstance(value, nn.Module) and depth < _DEEPEST:
        for name, part in attributes(value).items():
            object.__setattr__(value, name, _on_gpu(part, gpu, depth + 1))
    return value


_DEEPEST = 3
"""So many objects are looked into, one in the other."""

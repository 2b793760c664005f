"""The batches that a check runs: which sizes an epoch holds, and copies of their tensors on a GPU."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from dpdemo.calls.tree import entries, with_parts
from dpdemo.checking.evidence import Mode
from dpdemo.checking.observing.holders import attributes, core_of, walk

Stays = Callable[[torch.Tensor], bool]
"""Says which tensors stay where they are when the others are moved to a GPU."""


def nothing_stays(_: torch.Tensor) -> bool:
    """Say that every tensor is to be moved."""
    return False


def could_be_lengths(tensor: torch.Tensor) -> bool:
    """Return whether a tensor looks like one that PyTorch wants on the CPU, as lengths of sequences."""
    return tensor.device.type == "cpu" and tensor.dim() == 1 and tensor.dtype in (torch.int64, torch.int32)


def model_in_double(model: nn.Module) -> nn.Module:
    """Turn a model's floating-point and complex numbers into double precision."""
    found: nn.Module = model._apply(in_double)  # type: ignore[no-untyped-call] # PyTorch's own
    return found


def in_double(leaf: Any) -> Any:
    """Turn a floating-point or complex tensor into one of double precision; leave all else as it is."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    wide = torch.complex128 if leaf.is_complex() else torch.float64
    return leaf.to(wide) if leaf.is_complex() or leaf.is_floating_point() else leaf


def on_device(value: object, device: torch.device, stays: Stays = nothing_stays) -> Any:
    """Copy arguments to a device, as a training loop does before the call, but for tensors that stay."""
    if isinstance(value, PackedSequence):
        return value.to(device)  # type: ignore[arg-type] # its stub knows dtypes only
    if isinstance(value, torch.Tensor):
        target = value.device if stays(value) else device
        twin = value.detach().to(target).clone().requires_grad_(value.requires_grad)
        return twin if value.is_leaf else twin.clone()  # what is no leaf may be changed in place
    if (parts := entries(value)) is not None:
        return with_parts(value, [on_device(part, device, stays) for _, part in parts])
    try:
        if callable(value) or isinstance(value, nn.Module) or not attributes(value):
            return copy.deepcopy(value)
        inside = copy.copy(value)
        for name, part in attributes(value).items():
            object.__setattr__(inside, name, on_device(part, device, stays))
    except Exception:  # noqa: BLE001 - a user's own class
        return value
    return inside


def brought_along(model: nn.Module, paths: Sequence[str], gpu: torch.device) -> nn.Module:
    """Put on a GPU what modules hold at some paths beside their parameters and buffers."""
    core = core_of(model)
    for path in paths:
        owner, _, name = path.rpartition(".")
        holder = core.get_submodule(owner)
        value = getattr(holder, name)
        for part in walk(value):
            if isinstance(part.value, nn.Module):
                part.value.to(gpu)
        setattr(holder, name, on_device(value, gpu))
    return model


@dataclass(frozen=True)
class ProbeBatch:
    """One batch to probe; `is_real` where an epoch surely holds one of this size."""

    size: int
    mode: Mode
    is_real: bool


def plan(
    size: int, num_gpus: int, data_size: int | None, *, drop_last: bool, knows_modes: bool = True
) -> list[ProbeBatch]:
    """List the batches to run: the full one in both modes, and the short ones where splits go wrong.

    Without `data_size` the last batch can have any size: one more than there are GPUs, whose last chunk is a
    lone row and which leaves a GPU without any where there are three or more. Of a model that knows modes one
    less than there are GPUs, in evaluation, shows what a lone row hides in training.
    """
    planned = [ProbeBatch(size, "train", True), ProbeBatch(size, "eval", True)]
    if data_size is not None:
        last = data_size % size
        if last and not drop_last:
            planned += [ProbeBatch(last, "train", True), ProbeBatch(last, "eval", True)]
        return planned
    if drop_last:
        return planned
    few = [ProbeBatch(max(num_gpus - 1, 1), "eval", False)] if knows_modes or num_gpus == 2 else []
    short = [ProbeBatch(num_gpus + 1, "train", False), *few]
    return planned + [batch for batch in short if batch.size < size]

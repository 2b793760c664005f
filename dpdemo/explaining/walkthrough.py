"""One batch through scatter, replicate, parallel_apply and gather, as DataParallel itself calls them.

Listeners on DataParallel's steps (`calls/seam.py`) note the tensors of each step.
"""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Unpack

import torch
from torch import nn

from dpdemo.arithmetic.tolerance import tolerance_of
from dpdemo.calls.tree import named_tensors
from dpdemo.config.fields import Config
from dpdemo.config.load import Keys, expect_strategy, resolve, showing_keys
from dpdemo.epochs.devices import opened
from dpdemo.epochs.dp import place
from dpdemo.epochs.epoch import make_loader, threads_for, with_own_size
from dpdemo.errors import RunError
from dpdemo.explaining.steps import Listener
from dpdemo.models.calling import users_model
from dpdemo.models.failure import take_apart
from dpdemo.models.inputs import as_arguments, to_device
from dpdemo.models.modules import BuiltModel, build
from dpdemo.results.devices import Devices
from dpdemo.results.explanation import Explanation, ModuleSize, PlainCall, Step
from dpdemo.results.lessons import with_lessons


@showing_keys
def explain(
    config: Config | str | os.PathLike[str] | None = None, *, virtual: bool = False, **overrides: Unpack[Keys]
) -> Explanation:
    """Call DataParallel on the first batch of an epoch and report each of its steps.

    Args:
        config: a Config, or the path of a YAML file; the tutorial's values if left out.
        virtual: use virtual GPUs, as many as `gpus` asks for, instead of real ones.
        overrides: config keys that win over `config`, such as `gpus=[0, 1]` or `batch_size=64`.

    Returns:
        Each step's tensors in and out with shapes, devices and bytes, and how far the result is from a plain
            call of the module.

    Raises:
        UsageError: if the config is not valid, or names a GPU that does not exist.
        RunError: if the model fails; its message holds the replica and the user's own frames.

    """
    checked = expect_strategy(resolve(config, overrides))
    with opened(checked, virtual=virtual) as devices:
        built = build(checked, place(checked, devices))
        checked = with_own_size(checked, built)
        loader = make_loader(checked, built)
        batch = next(iter(loader))
        try:
            with threads_for(loader), users_model():
                return _explain(built, batch, checked, devices, virtual=virtual)
        except Exception as error:
            raise RunError(
                f"expected the model `{checked.model}` to take its first batch, got {take_apart(error)}"
            ) from error


def _explain(
    built: BuiltModel, batch: object, config: Config, devices: Devices, *, virtual: bool
) -> Explanation:
    args, kwargs = to_device(as_arguments(batch), built.input_device)
    listener = Listener(built.wrapper, built.split)
    with _repeatable(built.model, config.seed), listener.listening():
        built.model(*args, **kwargs)
    with _repeatable(built.model, config.seed):
        args, kwargs = listener.arguments
        plain = built.split(*args, **kwargs)
    parameters, buffers = list(built.split.parameters()), list(built.split.buffers())
    explanation = Explanation(
        config=config,
        devices=devices,
        wrapped=config.wrapped,
        virtual=virtual,
        batch_size=min(config.batch_size, config.data_size),
        module=ModuleSize(len(parameters), _num_bytes(parameters), len(buffers), _num_bytes(buffers)),
        steps=tuple(listener.steps),
        idle=_idle(devices, listener.steps[0]),
        plain=compare_with_plain(listener.result, plain),
    )
    return with_lessons(explanation)


@contextmanager
def _repeatable(model: nn.Module, seed: int) -> Iterator[None]:
    """Start a call from the config's seed and restore the model's buffers after it."""
    kept = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    with torch.random.fork_rng(devices=gpus):
        torch.manual_seed(seed)
        yield
    with torch.no_grad():
        for buffer, before in kept:
            buffer.copy_(before)


def _idle(devices: Devices, scatter: Step) -> Devices:
    """Return the devices that no chunk went to."""
    if devices.kind != "cuda":
        return Devices(devices[1:])
    return devices.without([piece.device for piece in scatter.made])


def _num_bytes(tensors: list[Any]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def compare_with_plain(result: object, plain: object) -> PlainCall:
    """Compare a result with that of a plain call, by the tensor that is furthest off for its type."""
    found, wanted = named_tensors(result), named_tensors(plain)
    is_alike = [(path, x.shape) for path, x in found] == [(path, x.shape) for path, x in wanted]
    device = str(wanted[0][1].device) if wanted else ""
    calls = [
        PlainCall(
            _difference(found[index][1], tensor) if is_alike else None,
            _largest(tensor),
            str(tensor.dtype).removeprefix("torch."),
            device,
        )
        for index, (_, tensor) in enumerate(wanted)
    ]
    return max(calls, key=_share, default=PlainCall(0.0 if is_alike else None, 0.0, "", device))


def _share(call: PlainCall) -> float:
    """Return a difference as a share of what its type allows."""
    if not call.difference:
        return 0.0
    allowed = tolerance_of(call.dtype).allowed(call.scale)
    return call.difference / allowed if allowed and call.difference < math.inf else math.inf


def _difference(first: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest difference, in the widest type of its kind, in which it is exact."""
    wide = torch.complex128 if first.is_complex() else torch.float64
    a, b = first.detach().cpu().to(wide), other.detach().cpu().to(wide)
    return _largest(torch.where((a == b) | (a.isnan() & b.isnan()), torch.zeros_like(a), a - b))


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.detach().abs().max()) if tensor.numel() else 0.0

"""An epoch's first batches under DataParallel, forward and backward, with each tensor on the way recorded."""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple, Unpack

import torch
from torch import nn

from dpdemo.config.fields import Config
from dpdemo.config.keys import Keys, showing_keys
from dpdemo.config.load import resolve
from dpdemo.errors import RunError, UsageError
from dpdemo.models.calling import users_model
from dpdemo.models.failure import take_apart
from dpdemo.models.modules import BuiltModel, build
from dpdemo.replaying.checksum import record_tensor
from dpdemo.reports.devices import Devices
from dpdemo.reports.recording import DEFAULT_BATCHES, RecordedBatch, Recording, TensorRecord
from dpdemo.running.dp import place
from dpdemo.running.epoch import make_loader, threads_for
from dpdemo.running.opening import opened
from dpdemo.watching.epoch import ReplicaObserver
from dpdemo.watching.tree import named_tensors


@showing_keys
def record(
    config: Config | str | os.PathLike[str] | None = None,
    *,
    virtual: bool = False,
    batches: int = DEFAULT_BATCHES,
    **overrides: Unpack[Keys],
) -> Recording:
    """Record what DataParallel does with the first batches of an epoch, forward and backward.

    Args:
        config: a Config, or the path of a YAML file; the tutorial's values if left out.
        virtual: record on virtual GPUs, as many as `gpus` asks for, instead of real ones.
        batches: how many batches at most.
        overrides: config keys that win over `config`, such as `gpus=[0, 1]` or `batch_size=64`.

    Returns:
        Checksums of weights, inputs, outputs and gradients, batch by batch and replica by replica.

    Raises:
        UsageError: if the config is not valid, or names a GPU that is not there.
        RunError: if the model fails; its message holds the user's own frames.

    """
    if batches < 1:
        raise UsageError(
            f"expected 1 or more batches, got {batches} - at `batches`", hint="leave it out to get 4"
        )
    checked = resolve(config, overrides)
    with opened(checked, virtual=virtual) as (devices, _):
        gpus = list(devices.ordinals) if devices.kind == "cuda" else None
        weights, *done = observed(checked, devices, batches)
        return Recording(
            torch=str(torch.__version__),
            virtual=virtual,
            device_names=device_names(devices),
            config=checked.model_dump(mode="json") | {"gpus": gpus},
            epoch_batches=len(make_loader(checked)),
            weights=weights,
            batches=tuple(RecordedBatch(number=n, tensors=tensors) for n, tensors in enumerate(done, 1)),
        )


def device_names(devices: Devices) -> tuple[str, ...]:
    """Name the hardware behind each device."""
    if devices.kind == "cpu":
        return ("cpu",)
    return tuple(torch.cuda.get_device_name(ordinal) for ordinal in devices.ordinals)


def observed(config: Config, devices: Devices, batches: int) -> Generator[tuple[TensorRecord, ...]]:
    """Yield the records of the weights, then those of each batch.

    Raises:
        UsageError: if the user's model cannot be made.
        RunError: if the model fails.

    """
    built = build(config, place(config, devices))
    yield tuple(record_tensor(what, tensor) for what, tensor in _named(built))
    observer = ReplicaObserver(built.wrapper, built.split, _Kept.of)
    loader = make_loader(config)
    try:
        with threads_for(loader), _repeatable(config.seed):
            for number, batch in enumerate(islice(loader, min(batches, len(loader))), 1):
                yield _do_batch(built, batch, observer, f"batch {number} of the model `{config.model}`")
    finally:
        observer.close()


@contextmanager
def _repeatable(seed: int) -> Iterator[None]:
    """Draw random numbers from the seed, and keep cuDNN from rounding float32 to TF32's 10 bits."""
    tf32 = torch.backends.cudnn.allow_tf32
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    with torch.random.fork_rng(devices=gpus):
        torch.manual_seed(seed)
        torch.backends.cudnn.allow_tf32 = False
        try:
            yield
        finally:
            torch.backends.cudnn.allow_tf32 = tf32


class _Kept(NamedTuple):
    """A replica's chunk and output, kept as they were."""

    input: list[tuple[str, torch.Tensor]]
    output: list[tuple[str, torch.Tensor]]

    @classmethod
    def of(cls, arguments: Any, result: Any) -> "_Kept":
        given = arguments[0] if len(arguments) == 1 else arguments
        return cls(_cloned(given), _cloned(result))


def _cloned(value: object) -> list[tuple[str, torch.Tensor]]:
    return [(path, tensor.detach().clone()) for path, tensor in named_tensors(value)]


def _do_batch(
    built: BuiltModel, batch: torch.Tensor, observer: ReplicaObserver, what: str
) -> tuple[TensorRecord, ...]:
    """Take a batch forward and backward, and record it."""
    inputs = batch.to(built.input_device)
    found = [("input", inputs.clone())]
    try:
        with users_model():
            built.model.zero_grad()
            output = built.model(inputs)
            loss = _loss(output)
            if loss is not None and loss.requires_grad:
                torch.autograd.backward(loss)
    except Exception as error:
        raise RunError(f"expected to record {what}, got {take_apart(error)}") from error
    for index, kept in enumerate(observer.take()):
        found += [(_named_part(f"chunk {index}", path), tensor) for path, tensor in kept.input]
        found += [(_named_part(f"output of replica {index}", path), tensor) for path, tensor in kept.output]
    found += [(_named_part("output", path), tensor) for path, tensor in named_tensors(output)]
    found += [("loss", loss)] if loss is not None else []
    found += [
        (f"gradient of {name}", parameter.grad)
        for name, parameter in _parameters(built)
        if parameter.grad is not None
    ]
    found += [(f"buffer {name}", buffer) for name, buffer in _buffers(built)]
    return tuple(record_tensor(what, tensor) for what, tensor in found)


def _named_part(what: str, path: str) -> str:
    return f"{what}, {path}" if path else what


def _loss(output: object) -> torch.Tensor | None:
    """Square and average every floating output; half precision is averaged in float32."""
    losses = [_mean_square(tensor) for _, tensor in named_tensors(output) if tensor.is_floating_point()]
    if not losses:
        return None
    total = losses[0]
    for loss in losses[1:]:
        total = total + loss.to(total)
    return total


def _mean_square(tensor: torch.Tensor) -> torch.Tensor:
    wide = tensor.float() if tensor.itemsize < 4 else tensor
    return wide.pow(2).mean()


def _named(built: BuiltModel) -> Iterator[tuple[str, torch.Tensor]]:
    yield from ((f"parameter {name}", tensor) for name, tensor in _parameters(built))
    yield from ((f"buffer {name}", tensor) for name, tensor in _buffers(built))


def _parameters(built: BuiltModel) -> Iterator[tuple[str, nn.Parameter]]:
    inside = _inside(built)
    return ((_bare(name, inside), parameter) for name, parameter in built.model.named_parameters())


def _buffers(built: BuiltModel) -> Iterator[tuple[str, torch.Tensor]]:
    inside = _inside(built)
    return ((_bare(name, inside), buffer) for name, buffer in built.model.named_buffers())


def _inside(built: BuiltModel) -> str:
    """Find what DataParallel puts before the names of the parameters that it wraps: `block2.module.`."""
    path = next(name for name, module in built.model.named_modules() if module is built.wrapper)
    return f"{path}.module." if path else "module."


def _bare(name: str, inside: str) -> str:
    return inside.removesuffix("module.") + name.removeprefix(inside) if name.startswith(inside) else name

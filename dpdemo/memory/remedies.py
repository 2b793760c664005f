"""Changes that help a GPU without enough memory: each is made for real, and a step predicted with it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.errors import RunError
from dpdemo.memory.steps import Measured, Stepper
from dpdemo.models.losses import Loss, make_loss
from dpdemo.results.memorydata import PARTS, GpuMemory, Remedy, RemedyName


def find_remedies(
    stepper: Stepper, batch_size: int, before: Measured, say: Callable[[str], None]
) -> tuple[Remedy, ...]:
    """Try each change at a batch size, and return what the GPU with the least room gains by it.

    Changes that gain nothing, or with which the model cannot run, are left out. The best comes first: after
    it the GPU with the least room, the same or another, has most.
    """
    found = []
    for change in _changes(stepper, batch_size):
        say(f"with {change.name}")
        try:
            with change.made as measure:
                after = measure(batch_size)
        except RunError:  # such as BatchNorm's, of a chunk with one row
            continue
        worst, was = _worst(after), _worst(before)
        gain = (worst.spare_bytes or 0) - (was.spare_bytes or 0)
        if gain > 0:
            found.append((gain, Remedy(change.name, change.how, gain, worst.device, worst.peak_bytes)))
    stepper.forget_optimizer_state()
    return tuple(remedy for _, remedy in sorted(found, key=lambda pair: -pair[0]))


def _worst(measured: Measured) -> GpuMemory:
    return min(measured.gpus, key=lambda gpu: gpu.spare_bytes or 0)


Measure = Callable[[int], Measured]


class _Change(NamedTuple):
    """A change to a program; the context manager makes it, and yields a function that measures a step."""

    name: RemedyName
    how: str
    made: AbstractContextManager[Measure]


@contextmanager
def _set(stepper: Stepper, owner: Any, **values: object) -> Iterator[Measure]:
    """Set attributes for the length of a `with` block, and measure as usual."""
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield stepper.measure
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def _changes(stepper: Stepper, batch_size: int) -> Iterator[_Change]:
    if not stepper.training.inference:
        yield from _changes_of_training(stepper, batch_size)
    wrapper = stepper.built.wrapper
    if not isinstance(wrapper, nn.DataParallel) or len(wrapper.device_ids) < 2:
        return
    if wrapper is stepper.built.model:  # else the following layers need the output on its device
        yield from _changes_of_gathering(stepper, wrapper)


def _changes_of_training(stepper: Stepper, batch_size: int) -> Iterator[_Change]:
    training = stepper.training
    blocks = repeated_blocks(stepper.built.model)
    if blocks is not None:
        how = f"torch.utils.checkpoint around each {blocks.__name__}"
        yield _Change("activation checkpointing", how, _checkpointing(stepper, blocks))
    if not training.amp:
        how = 'torch.autocast("cuda", dtype=torch.bfloat16) around the forward pass'
        yield _Change("autocast", how, _set(stepper, stepper, training=replace(training, amp=True)))
    if batch_size > 1:
        how = f"two backward passes of {-(-batch_size // 2)} rows before each step"
        yield _Change("gradient accumulation", how, _accumulating(stepper))


def _changes_of_gathering(stepper: Stepper, wrapper: nn.DataParallel[nn.Module]) -> Iterator[_Change]:
    if not stepper.training.inference:
        how = "return the loss from forward, so that only numbers are gathered"
        yield _Change("loss inside the model", how, _loss_inside(stepper))
        how = "a process for each GPU, which holds the gradients once more, to send them"
        yield _Change("DistributedDataParallel", how, _distributed(stepper, wrapper))
    other = next(index for index in reversed(wrapper.device_ids) if index != wrapper.output_device)
    how = f"DataParallel(model, output_device={other})"
    yield _Change("another output_device", how, _set(stepper, wrapper, output_device=other))


@contextmanager
def _accumulating(stepper: Stepper) -> Iterator[Measure]:
    """Measure half a batch while the gradients of the other half exist."""
    with _set(stepper, stepper, training=replace(stepper.training, zero_grad="to-zero")) as measure:
        yield lambda batch_size: measure(-(-batch_size // 2))


def repeated_blocks(model: nn.Module) -> type[nn.Module] | None:
    """Return the class of the blocks that a model repeats: those of its list with the most parameters."""
    lists = [module for module in model.modules() if isinstance(module, (nn.ModuleList, nn.Sequential))]
    alike = [blocks for blocks in lists if _are_blocks(list(blocks))]
    if not alike:
        return None
    largest = max(alike, key=lambda blocks: sum(parameter.numel() for parameter in blocks.parameters()))
    return type(largest[0])


def _are_blocks(parts: list[nn.Module]) -> bool:
    is_alike = len(parts) > 1 and len({type(part) for part in parts}) == 1
    return is_alike and len(list(parts[0].modules())) > 2


@contextmanager
def _checkpointing(stepper: Stepper, kind: type[nn.Module]) -> Iterator[Measure]:
    """Recompute the activations of each block of a class in the backward pass, in replicas too."""
    forward: Any = kind.forward
    is_inherited = "forward" not in vars(kind)

    def checkpointed(self: nn.Module, *args: object, **kwargs: Any) -> object:
        if not torch.is_grad_enabled():
            return forward(self, *args, **kwargs)
        run = partial(forward, self)
        return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)

    try:
        with _set(stepper, kind, forward=checkpointed) as measure:
            yield measure
    finally:
        if is_inherited:
            del kind.forward


@contextmanager
def _distributed(stepper: Stepper, wrapper: nn.DataParallel[nn.Module]) -> Iterator[Measure]:
    """Run the first GPU's chunk alone, as each process does, and add the buckets of its gradients."""
    device_ids = wrapper.device_ids
    trained = [parameter for parameter in wrapper.parameters() if parameter.requires_grad]
    buckets = sum(parameter.nbytes for parameter in trained)

    def measure(batch_size: int) -> Measured:
        alone = stepper.measure(split_batch(batch_size, len(device_ids)).largest)
        first = alone.gpus[device_ids[0]]
        held = {"temporaries": _part(first, "temporaries") + buckets}
        parts = tuple(held.get(name, size) for name, size in zip(PARTS, first.parts, strict=True))
        each = replace(first, parts=parts, reserved_bytes=first.reserved_bytes + buckets)
        gpus = tuple(
            replace(each, device=gpu.device, capacity_bytes=gpu.capacity_bytes) for gpu in alone.gpus
        )
        return replace(alone, gpus=gpus)

    with _set(stepper, wrapper, device_ids=device_ids[:1]):
        yield measure


class _WithLoss(nn.Module):
    """A model that returns its loss."""

    def __init__(self, model: nn.Module, loss: Loss, dim: int) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.dim = dim

    def forward(self, *args: object, **kwargs: object) -> torch.Tensor:
        """Return the loss of one chunk, as a row that can be gathered along the batch dimension."""
        loss = self.loss(self.model(*args, **kwargs))
        return loss.reshape((1,) * (self.dim + 1))


@contextmanager
def _loss_inside(stepper: Stepper) -> Iterator[Measure]:
    wrapper: Any = stepper.built.wrapper
    inside = _WithLoss(wrapper.module, stepper.loss, wrapper.dim)
    with _set(stepper, wrapper, module=inside), _set(stepper, stepper, loss=make_loss("mean")) as measure:
        yield measure


def _part(gpu: GpuMemory, name: str) -> int:
    return gpu.parts[PARTS.index(name)]

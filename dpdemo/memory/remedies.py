"""Changes that help a GPU without enough memory: each is made for real, and a step predicted with it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.config.load import make_config
from dpdemo.errors import RunError, UsageError
from dpdemo.memory.blocks import blocks_of
from dpdemo.memory.case import Case
from dpdemo.memory.steps import Measured, Stepper
from dpdemo.memory.trace import Lane
from dpdemo.memory.wrapping import checkpointing
from dpdemo.models.losses import Loss, make_loss
from dpdemo.results.memorydata import GpuMemory, Remedy, RemedyName
from dpdemo.virtual.block import suspended

Law = Callable[[int], list[Lane] | None]
"""The lane of each GPU at a batch size."""
Opened = Callable[[], AbstractContextManager[Stepper]]


def find_remedies(
    case: Case, opened: Opened, batch_size: int, before: Sequence[GpuMemory], law: Law | None = None
) -> tuple[Remedy, ...]:
    """Try each change at a batch size, and return what the GPU with the least room gains by it.

    Changes that gain nothing, or with which the model cannot run, are left out. The best comes first: after
    it the GPU with the least room, the same or another, has most.
    """
    with opened() as stepper:
        num_changes = len([*_changes(case, stepper, batch_size, law)])
    found = []
    for place in range(num_changes):
        with opened() as stepper:
            change = [*_changes(case, stepper, batch_size, law)][place]
            case.say(f"with {change.name}")
            try:
                with change.made as measure:
                    after = measure(batch_size)
            except (RunError, UsageError):  # such as BatchNorm's, of a chunk with one row
                continue
        worst, was = _worst(after.gpus), _worst(before)
        gain = (worst.spare_bytes or 0) - (was.spare_bytes or 0)
        if gain > 0:
            found.append((gain, Remedy(change.name, change.how, gain, worst.device, worst.peak_bytes)))
    return tuple(remedy for _, remedy in sorted(found, key=lambda pair: -pair[0]))


def _worst(gpus: Sequence[GpuMemory]) -> GpuMemory:
    return min(gpus, key=lambda gpu: gpu.spare_bytes or 0)


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


def _changes(case: Case, stepper: Stepper, batch_size: int, law: Law | None) -> Iterator[_Change]:
    if not stepper.training.inference:
        yield from _changes_of_training(case, stepper, batch_size, law)
    yield from _changes_of_wrapper(stepper)
    yield from _changes_of_strategy(case, stepper)


def _changes_of_wrapper(stepper: Stepper) -> Iterator[_Change]:
    wrapper = stepper.built.wrapper
    if not isinstance(wrapper, nn.DataParallel) or len(wrapper.device_ids) < 2:
        return
    if wrapper is stepper.built.model:  # else the following layers need the output on its device
        yield from _changes_of_gathering(stepper, wrapper)


def _changes_of_training(case: Case, stepper: Stepper, batch_size: int, law: Law | None) -> Iterator[_Change]:
    training, wrapping = stepper.training, case.wrapping
    blocks = blocks_of(stepper.built.model, wrapping.blocks)
    if blocks and not wrapping.checkpoint:
        kinds = [*dict.fromkeys(type(block) for block in blocks)]
        how = f"torch.utils.checkpoint around each {' and '.join(map(_plain_name, kinds))}"
        yield _Change("activation checkpointing", how, _checkpointing(stepper, kinds))
    if not training.amp and not wrapping.mixed:
        how = 'torch.autocast("cuda", dtype=torch.bfloat16) around the forward pass'
        yield _Change("autocast", how, _set(stepper, stepper, training=replace(training, amp=True)))
    if batch_size > 1:
        how = f"two backward passes of {-(-batch_size // 2)} rows before each step"
        yield _Change("gradient accumulation", how, _accumulating(stepper, law))


def _changes_of_gathering(stepper: Stepper, wrapper: nn.DataParallel[nn.Module]) -> Iterator[_Change]:
    if not stepper.training.inference:
        how = "return the loss from forward, so that only numbers are gathered"
        yield _Change("loss inside the model", how, _loss_inside(stepper))
    other = next(index for index in reversed(wrapper.device_ids) if index != wrapper.output_device)
    how = f"DataParallel(model, output_device={other})"
    yield _Change("another output_device", how, _set(stepper, wrapper, output_device=other))


def _changes_of_strategy(case: Case, stepper: Stepper) -> Iterator[_Change]:
    """Yield the strategy with a process for each GPU, last, since it builds the model again."""
    is_own = case.config.strategy == "dp" and not stepper.training.inference
    if not is_own or len(set(case.config.ordinals or ())) < 2 or case.config.dim:
        return
    how = "a process for each GPU, which holds the gradients once more, to send them"
    yield _Change("DistributedDataParallel", how, _in_processes(case))


def _plain_name(kind: type[nn.Module]) -> str:
    """Name a block's class as the user knows it; `fully_shard` makes a class of its own from it."""
    return kind.__name__.removeprefix("FSDP") if hasattr(kind, "unshard") else kind.__name__


@contextmanager
def _checkpointing(stepper: Stepper, kinds: list[type[nn.Module]]) -> Iterator[Measure]:
    with checkpointing(kinds):
        yield stepper.measure


@contextmanager
def _accumulating(stepper: Stepper, law: Law | None) -> Iterator[Measure]:
    """Measure half a batch while the gradients of the other half exist."""
    with _set(stepper, stepper, training=replace(stepper.training, zero_grad="to-zero")):

        def measure(batch_size: int) -> Measured:
            half = -(-batch_size // 2)
            return stepper.measure(half, law(half) if law else None)

        yield measure


@contextmanager
def _in_processes(case: Case) -> Iterator[Measure]:
    """Measure a rank of DistributedDataParallel instead, with the rows of a GPU, in a block of its own."""
    config = case.config
    ranks = len(config.ordinals or ())
    values = {**config.values(), "strategy": "ddp", "output_device": None}

    def measure(batch_size: int) -> Measured:
        other = replace(case, config=make_config(values), say=lambda _: None)
        with suspended(), other.opened() as stepper:
            measured = stepper.measure(split_batch(batch_size, ranks).largest)
        first, names = measured.gpus[0], dict.fromkeys(config.ordinals or ())
        capacities = case.hardware.capacities(len(names))
        each = zip(names, capacities, strict=True)
        gpus = [replace(first, device=f"cuda:{name}", capacity_bytes=limit) for name, limit in each]
        return replace(measured, gpus=tuple(gpus))

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

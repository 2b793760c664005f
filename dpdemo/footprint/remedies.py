"""What would help a GPU that lacks room: each change made for real, and a step predicted with it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn.parallel._functions import Scatter

from dpdemo.errors import RunError
from dpdemo.footprint.losses import Loss
from dpdemo.footprint.steps import Measured, Stepper
from dpdemo.memoryreport import PARTS, GpuMemory, Remedy
from dpdemo.split import split_batch

_OF_A_ROW = ("inputs", "activations", "temporaries")


def find_remedies(
    stepper: Stepper, batch_size: int, before: Measured, binding: int, say: Callable[[str], None]
) -> tuple[Remedy, ...]:
    """Try each change at a batch size, and say what it gains for the GPU that binds.

    A change that gains nothing, or with which the model cannot run, is left out. The best comes first: the
    one after which the fullest GPU, be it the same or another, has most room left.
    """
    found = []
    for name, how, change in _changes(stepper, batch_size, before):
        say(f"with {name}")
        try:
            with change as changed:
                after = changed.measure(batch_size)
        except RunError:  # such as BatchNorm's, of a chunk with one row
            continue
        fullest = min(after.gpus, key=lambda gpu: gpu.spare_bytes or 0)
        gain = before.gpus[binding].peak_bytes - after.gpus[binding].peak_bytes
        if gain > 0:
            remedy = Remedy(name, how, gain, fullest.device, fullest.peak_bytes)
            found.append((fullest.spare_bytes or 0, remedy))
    return tuple(remedy for _, remedy in sorted(found, key=lambda pair: -pair[0]))


def _changes(stepper: Stepper, batch_size: int, before: Measured) -> Iterator[tuple[Any, str, Any]]:
    """List the changes that can be made to this model: name, how, and what makes it and takes it back."""
    if not stepper.training.inference:
        yield "inference mode", "model.eval() and torch.no_grad()", _inference(stepper)
    wrapper = stepper.built.wrapper
    if not isinstance(wrapper, nn.DataParallel) or len(wrapper.device_ids) < 2:
        return
    if wrapper is stepper.built.model:  # else other layers wait for the output where it is
        if not stepper.training.inference:
            how = "return the loss from forward, so that only numbers are gathered"
            yield "loss inside the model", how, _loss_inside(stepper)
        other = next(index for index in reversed(wrapper.device_ids) if index != wrapper.output_device)
        how = f"DataParallel(model, output_device={other})"
        yield "another output_device", how, _output_on(stepper, other)
    sizes = _smaller_first_chunk(batch_size, before, wrapper)
    if sizes is not None:
        rows = f"{sizes[0]} row{'s' if sizes[0] > 1 else ''}"
        how = f"scatter {rows} to cuda:{wrapper.device_ids[0]}, {sizes[1]} to each of the others"
        yield "smaller chunk on GPU 0", how, _chunks_of(stepper, sizes)


@contextmanager
def _inference(stepper: Stepper) -> Iterator[Stepper]:
    training = stepper.training
    stepper.forget_optimizer_state()
    stepper.training = replace(training, inference=True)
    try:
        yield stepper
    finally:
        stepper.training = training


@contextmanager
def _output_on(stepper: Stepper, index: int) -> Iterator[Stepper]:
    wrapper: Any = stepper.built.wrapper
    before, wrapper.output_device = wrapper.output_device, index
    try:
        yield stepper
    finally:
        wrapper.output_device = before


class _WithLoss(nn.Module):
    """A model that returns its loss."""

    def __init__(self, model: nn.Module, loss: Loss, dim: int) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.dim = dim

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return the loss of one chunk, as a row that can be gathered along the batch dimension."""
        loss = self.loss(self.model(*args, **kwargs))
        return loss.reshape((1,) * (self.dim + 1))


@contextmanager
def _loss_inside(stepper: Stepper) -> Iterator[Stepper]:
    wrapper: Any = stepper.built.wrapper
    inner, loss = wrapper.module, stepper.loss
    wrapper.module, stepper.loss = _WithLoss(inner, loss, wrapper.dim), torch.Tensor.mean
    try:
        yield stepper
    finally:
        wrapper.module, stepper.loss = inner, loss


def _smaller_first_chunk(
    batch_size: int, before: Measured, wrapper: nn.DataParallel[Any]
) -> tuple[int, ...] | None:
    """Choose chunks with which the first GPU would be as full as the others; None if it is no fuller."""
    first, second, *_ = (before.gpus[index] for index in wrapper.device_ids)
    num_gpus, rows = len(wrapper.device_ids), split_batch(batch_size, len(wrapper.device_ids)).chunk
    row_bytes = max(1, sum(_part(second, part) for part in _OF_A_ROW) // rows)
    moved = (first.peak_bytes - second.peak_bytes) * (num_gpus - 1) // (row_bytes * num_gpus)
    moved = min(moved, rows - 1)
    if moved < 1:
        return None
    rest = batch_size - (rows - moved)
    return (rows - moved, *split_batch(rest, num_gpus - 1).sizes())


def _part(gpu: GpuMemory, name: str) -> int:
    return gpu.parts[PARTS.index(name)]


@contextmanager
def _chunks_of(stepper: Stepper, sizes: tuple[int, ...]) -> Iterator[Stepper]:
    """Let scatter cut chunks of these sizes instead of equal ones."""
    wrapper: Any = stepper.built.wrapper
    before = vars(wrapper)["scatter"]

    def scatter(args: Any, kwargs: Any, device_ids: Any) -> Any:
        targets = [torch.device("cuda", index) for index in device_ids[: len(sizes)]]

        def cut(value: Any) -> list[Any]:
            if isinstance(value, torch.Tensor):
                return list(Scatter.apply(targets, sizes, wrapper.dim, value))  # type: ignore[no-untyped-call]
            return [value for _ in targets]

        cut_args = [cut(value) for value in args]
        cut_kwargs = {name: cut(value) for name, value in kwargs.items()}
        places = range(len(targets))
        return (
            tuple(tuple(value[place] for value in cut_args) for place in places),
            tuple({name: value[place] for name, value in cut_kwargs.items()} for place in places),
        )

    vars(wrapper)["scatter"] = scatter
    try:
        yield stepper
    finally:
        vars(wrapper)["scatter"] = before

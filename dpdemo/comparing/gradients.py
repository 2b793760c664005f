"""One batch's gradients, really computed: by one device, by DataParallel, and by ranks of DDP.

All start from the same seed and the same samples. The loss is one number per sample, the mean square of its
outputs, so that a sample can be weighed.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Literal

import torch
from torch import nn

from dpdemo.config.fields import Config
from dpdemo.errors import RunError
from dpdemo.models.calling import users_model
from dpdemo.models.failure import take_apart
from dpdemo.models.modules import BuiltModel, build
from dpdemo.reports.devices import Devices
from dpdemo.running.ddp.launch import launch
from dpdemo.running.ddp.rank import Rank, drawn_by, placement
from dpdemo.running.ddp.worker import Job
from dpdemo.running.dp import place
from dpdemo.running.epoch import Progress, make_dataset
from dpdemo.virtual import virtual_gpus
from dpdemo.watching.tree import named_tensors

Reduction = Literal["mean", "sum"]
Gradients = dict[str, torch.Tensor]
Reducer = Callable[[torch.Tensor], torch.Tensor]
"""Makes one loss of the losses of all samples."""
_REDUCERS: dict[Reduction, Reducer] = {"mean": torch.mean, "sum": torch.sum}
Part = tuple[Sequence[int], float]
"""Samples that go through the model together, and the weight of each one's loss."""


def losses_of(output: object, dim: int) -> torch.Tensor:
    """Give the loss of each sample: the mean square of its outputs."""
    each = [
        tensor.float().pow(2).movedim(dim, 0).flatten(1).mean(1)
        for _, tensor in named_tensors(output)
        if tensor.requires_grad
    ]
    return torch.stack(each).sum(0)


def _indices(samples: Sequence[int]) -> torch.Tensor:
    """Make a tensor of numbers; a range past what memory holds is refused at once."""
    if isinstance(samples, range):
        return torch.arange(samples.start, samples.stop, samples.step, device="cpu")
    return torch.tensor(samples, device="cpu")


def on_one_device(config: Config, parts: Sequence[Part]) -> Gradients:
    """Compute the gradients of a weighted sum of losses on the CPU alone, a part of the batch at a time."""
    built = build(config, place(config, Devices.cpu()))
    found: Gradients = {}
    for samples, weight in parts:
        found = _gradients(config, built, _indices(samples), _weighing(weight))
    return found  # backward adds up


def on_data_parallel(
    config: Config, samples: Sequence[int], num_gpus: int, *, loss_inside: bool
) -> Gradients:
    """Compute the gradients under genuine DataParallel over virtual GPUs.

    The loss is the mean over the gathered outputs, or with `loss_inside` the mean of the replicas' own means.
    """
    with virtual_gpus(num_gpus):
        devices = Devices.of("cuda", range(num_gpus))
        if not loss_inside:
            built = build(config, place(config, devices))
            return _gradients(config, built, _indices(samples), torch.mean)
        plain = build(config, place(config, Devices.cpu())).split.to("cuda:0")
        wrapper = nn.DataParallel(_LossInside(plain, config.dim), list(range(num_gpus)), dim=config.dim)
        built = BuiltModel(wrapper, plain, wrapper, torch.device("cuda", 0))
        return _gradients(config, built, _indices(samples), torch.mean, inside=True)


def on_ranks(config: Config, num_ranks: int, timeout: timedelta) -> dict[Reduction, Gradients]:
    """Compute the gradients of one batch per rank under genuine DDP, in that many processes."""
    devices = tuple(Devices.cpu().tiled(num_ranks))
    found: dict[Reduction, Gradients] = launch(Job(config, devices, timeout, work=gradients_of_rank))
    return found


def gradients_of_rank(config: Config, rank: Rank, progress: Progress | None) -> dict[Reduction, Gradients]:
    """Compute one rank's gradients: all that its sampler gives it is one batch."""
    del progress
    samples = drawn_by(config, rank.world)
    return {
        reduction: _gradients(config, build(config, placement(rank.device)), samples, reducer)
        for reduction, reducer in _REDUCERS.items()
    }


class _LossInside(nn.Module):
    """A model that returns its loss, as one number per replica: a common way to save memory on device 0."""

    def __init__(self, module: nn.Module, dim: int) -> None:
        super().__init__()
        self.module = module
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return losses_of(self.module(x), self.dim).mean().reshape(1)


def _weighing(weight: float) -> Reducer:
    """Make the sum of losses, each with the same weight."""
    return lambda losses: losses.sum() * weight


def _gradients(
    config: Config,
    built: BuiltModel,
    samples: torch.Tensor,
    reduce: Reducer,
    *,
    inside: bool = False,
) -> Gradients:
    batch = make_dataset(config).rows(samples).movedim(0, config.dim)
    try:
        with users_model():
            output = built.model(batch.to(built.input_device))
            loss = reduce(output if inside else losses_of(output, config.dim))
            loss.backward()  # type: ignore[no-untyped-call]
    except Exception as error:
        raise RunError(
            f"expected the model `{config.model}` to take a step, got {take_apart(error)}"
        ) from error
    return {
        name: parameter.grad.detach().cpu().float().clone()
        for name, parameter in built.split.named_parameters()
        if parameter.grad is not None
    }

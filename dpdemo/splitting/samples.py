"""Weight of each sample and token in the gradient under DataParallel, compared with one GPU.

A loss that averages over its chunk gives its samples the weight 1 ÷ (what it averages), so where chunks, or
counts of valid labels, are unequal some samples count more. The weight shows in the gradient of what the loss
is computed from: for each sample (and token) that gradient points the same way on one GPU and under
DataParallel, and is as many times longer as the sample counts more. It is taken at the output of the last
layer before the loss, in double precision, so that nothing but the weight differs.
"""

import copy
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from dpdemo.errors import RunError, UsageError
from dpdemo.models.calling import users_model
from dpdemo.models.failure import take_apart
from dpdemo.models.inputs import Arguments, as_arguments, to_device
from dpdemo.models.rows import rows_of
from dpdemo.models.user import make_model
from dpdemo.results.weights import SampleWeight, WeightsReport
from dpdemo.virtual import virtual_gpus
from dpdemo.watching.tree import flatten, rebuild

Reduction = Callable[[torch.Tensor], torch.Tensor]
"""Makes one number of the losses of all GPUs, as the program does before it goes backward."""


def sample_weights(
    model: nn.Module | Callable[[], object],
    inputs: object,
    *labels: object,
    gpus: int = 4,
    reduction: Reduction = torch.mean,
    dim: int = 0,
) -> WeightsReport:
    """Compute how much each sample of a batch counts in the gradient under DataParallel, against one GPU.

    Args:
        model: a model that returns its loss, or a function that builds one. Copies of it are run, in float64.
        inputs: the first argument of its forward, of shape (rows, ...); a dict of keyword arguments; or a
            tuple of arguments.
        labels: further arguments, such as the labels, of shape (rows, ...).
        gpus: how many virtual GPUs.
        reduction: what the program makes of the losses, a tensor of shape (GPUs,): `torch.mean`, `torch.sum`
            or a function of its own.
        dim: the batch dimension.

    Returns:
        The weight of each sample, and of each token that counts: 1 is its weight on one GPU.

    Raises:
        UsageError: if the model does not return a loss.
        RunError: if it fails, on one GPU or under DataParallel.

    """
    given = ((inputs, *labels), {}) if labels else as_arguments(inputs)
    with virtual_gpus(gpus), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        name = getattr(model, "__qualname__", type(model).__name__)
        made, _ = make_model(model, name)
        core = made.module if isinstance(made, nn.DataParallel) else made
        return _weigh(core, rebuild(given, _in_double), gpus, dim, reduction)


def _in_double(leaf: object) -> object:
    is_float = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    return leaf.double() if is_float else leaf  # type: ignore[attr-defined] # it is a tensor


def _weigh(model: nn.Module, given: Arguments, gpus: int, dim: int, reduction: Reduction) -> WeightsReport:
    """Compare the gradients of a batch on one GPU and under DataParallel."""
    rows = rows_of(*given, dim, gpus)
    copied = copy.deepcopy(model).to("cuda:0", torch.float64).eval()
    name, alone = _gradients(copied, given, torch.sum)
    copied = copy.deepcopy(model).to("cuda:0", torch.float64).eval()
    _, split = _gradients(nn.DataParallel(copied, list(range(gpus)), dim=dim), given, reduction, name)
    single = _by_row(torch.cat(list(alone.values())), rows)
    parallel = _by_row(torch.cat([split[device].to(single.device) for device in sorted(split)]), rows)
    if single is None or parallel is None or single.shape != parallel.shape:
        raise UsageError("expected a layer with a row for each sample before the loss, got none", key="model")
    whole = sum(map(len, split.values()))
    sizes = [len(split[device]) * rows // whole for device in sorted(split)]
    devices = [
        f"cuda:{device}" for device, size in zip(sorted(split), sizes, strict=True) for _ in range(size)
    ]
    samples = tuple(_weight(index, devices[index], single[index], parallel[index]) for index in range(rows))
    return WeightsReport(type(model).__name__, gpus, rows, tuple(sizes), samples)


def _gradients(
    model: nn.Module, given: Arguments, reduction: Reduction, name: str | None = None
) -> tuple[str, dict[int, torch.Tensor]]:
    """Run forward and backward, and return the gradient of a layer's output on each GPU.

    Without a name it is that of the last layer with an output that the loss depends on.
    """
    kept: dict[str, dict[int, torch.Tensor]] = {}
    core = model.module if isinstance(model, nn.DataParallel) else model
    for path, module in core.named_modules():
        if next(module.children(), None) is None or path == name:
            module.register_forward_hook(partial(_keep, kept, path))
    args, kwargs = to_device(given, torch.device("cuda:0"))
    torch.manual_seed(0)
    try:
        with users_model(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Was asked to gather along dimension 0")  # that is weighed here
            loss = _loss_of(model(*args, **kwargs))
            reduction(loss).backward()  # type: ignore[no-untyped-call] # PyTorch's own
    except UsageError:
        raise
    except Exception as error:
        raise RunError(f"expected the model to take a step in float64, got {take_apart(error)}") from error
    found = {
        path: {device: part.grad for device, part in outputs.items() if part.grad is not None}
        for path, outputs in kept.items()
    }
    last = name or next((path for path in reversed(found) if found[path]), None)
    if last is None or not found.get(last):
        raise UsageError("expected a loss that depends on a layer's output, got none", key="model")
    return last, found[last]


def _keep(
    kept: dict[str, dict[int, torch.Tensor]], path: str, module: object, args: object, output: object
) -> None:
    del module, args
    if isinstance(output, torch.Tensor) and output.requires_grad:
        output.retain_grad()
        if output.get_device() in kept.get(path, {}):
            del kept[path]  # called again: the last call counts, and comes last
        kept.setdefault(path, {})[output.get_device()] = output


def _loss_of(result: object) -> torch.Tensor:
    """Find the loss in a result: the first part that is a number, or one for each GPU."""
    tensors = [(path, leaf) for path, leaf in flatten(result) if isinstance(leaf, torch.Tensor)]
    for path, leaf in tensors:
        if leaf.requires_grad and leaf.numel() and (leaf.dim() <= 1 or "loss" in path):
            return leaf
    shapes = ", ".join(str(tuple(leaf.shape)) for _, leaf in tensors)
    raise UsageError(
        f"expected a model that returns its loss, got results of shape {shapes or 'none'}",
        key="model",
        hint="a loss taken outside, on the gathered result, weighs all samples as one GPU does",
    )


def _by_row(gradient: torch.Tensor, rows: int) -> Any:
    """Reshape to one row per sample: (rows, tokens, features); None if the rows do not divide it."""
    if gradient.dim() < 1 or not rows or len(gradient) % rows:
        return None
    features = gradient.shape[-1] if gradient.dim() > 1 else 1
    return gradient.reshape(rows, -1, features)


def _weight(index: int, device: str, alone: torch.Tensor, split: torch.Tensor) -> SampleWeight:
    """Weigh one sample, of shape (tokens, features), by its gradients' lengths."""
    squares, products = alone.square().sum(-1), (alone * split).sum(-1)
    counted = squares > squares.max() * 1e-20 if squares.numel() else squares > 0
    weights = (products[counted] / squares[counted]).tolist()
    total = float(squares.sum())
    weight = float(products.sum()) / total if total > 0 else None
    return SampleWeight(index, device, weight, tuple(weights) if len(weights) > 1 else ())

"""Comparing DataParallel's result and gradients with those of one device."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from dpdemo.arithmetic.tolerance import whole_model_tolerance
from dpdemo.calls.tree import flatten, rebuild, tensors_in
from dpdemo.calls.unseen import unseen
from dpdemo.checking.evidence import UNEQUAL, LossGradients
from dpdemo.checking.observing.closeness import copy_of, same_numbers

_OF_GRADIENTS = 5
"""Gradients take about as many more operators as this, and are compared by their norm."""
_MAX_PARTS = 200
_HALF = (torch.float16, torch.bfloat16)


def floats(value: object) -> dict[str, torch.Tensor]:
    """List the tensors of a result that gradients can flow through."""
    return {
        path: leaf
        for path, leaf in flatten(value)
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.numel() > 0
    }


def first_difference(first: object, other: object) -> tuple[bool | None, str | None, float]:
    """Compare two results: equal or not (None: not of one shape), what differs first, and by how much."""
    left, right = opened(first), opened(other)
    paths = [dict(flatten(side)) for side in (left, right)]
    for path in (*paths[0], *paths[1]):
        if path not in paths[0] or path not in paths[1]:
            return None, path, 0.0
    for path, leaf, twin in _pairs(left, right):
        if leaf.shape != twin.shape:
            return None, path, 0.0
        if not same_numbers(leaf, twin):
            return False, path, gap(leaf, twin)
    return True, None, 0.0


def _pairs(first: object, other: object) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """List the tensors that stand at the same place of two results."""
    twins = dict(flatten(other))
    for path, leaf in flatten(first):
        twin = twins.get(path)
        if isinstance(leaf, torch.Tensor) and isinstance(twin, torch.Tensor):
            yield path, leaf, twin


def tensors_of(value: object) -> dict[str, torch.Tensor]:
    """List the tensors of a result, those too that gather joins and scatter does not open."""
    return {path: leaf for path, leaf in flatten(opened(value)) if isinstance(leaf, torch.Tensor)}


def opened(value: object) -> object:
    """Open what gather can join though scatter does not open it: a class that iterates over tensors.

    gather builds `type(out)(map(...))` anew from what iterating gives (torch/nn/parallel/scatter_gather.py),
    which transformers' DynamicCache is made for.
    """
    return rebuild(value, _opened_leaf)


def _opened_leaf(leaf: object) -> object:
    if isinstance(leaf, (torch.Tensor, str, bytes, nn.Module, type)) or not hasattr(leaf, "__iter__"):
        return leaf
    try:
        parts = list(itertools.islice(leaf, _MAX_PARTS))
    except Exception:  # noqa: BLE001 - a user's own class
        return leaf
    return parts if any(True for _ in tensors_in(parts)) else leaf


def joined_objects(single: object, parallel: object) -> tuple[str, ...]:
    """List the objects in a result that gather has made anew, with tensors of the shapes of one device's."""
    many = dict(flatten(parallel))
    return tuple(
        path
        for path, leaf in flatten(single)
        if _opened_leaf(leaf) is not leaf
        and path in many
        and type(many[path]) is type(leaf)
        and first_difference(leaf, many[path])[0] is not None
    )


def gap(first: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest difference of two tensors' numbers."""
    wide = torch.complex128 if first.is_complex() else torch.float64
    return float((first.detach().cpu().to(wide) - other.detach().cpu().to(wide)).abs().max())


def joined(outputs: list[object], dim: int) -> Any:
    """Join the results of chunks as gather would, without its restrictions; None where they do not fit."""
    columns = [dict(flatten(output)) for output in outputs]
    result = {}
    for path, first in columns[0].items():
        if not isinstance(first, torch.Tensor):
            continue
        try:
            parts = [column[path].detach().cpu() for column in columns]
            are_numbers = dim == 0 and all(part.dim() == 0 for part in parts)  # which become a vector
            result[path] = torch.stack(parts) if are_numbers else torch.cat(parts, dim)
        except (KeyError, AttributeError, RuntimeError, IndexError):
            return None
    return result


def reordered(single: object, outputs: list[object]) -> tuple[tuple[str, int], ...]:
    """Find results whose rows are those of one device in another order: flattened with the batch second.

    Returns:
        Their paths, each with the T of its (T * B, ...) rows; () where any result is not explained by that.

    """
    columns = [tensors_of(output) for output in outputs]
    found = []
    for path, leaf in tensors_of(single).items():
        tensors = [column[path].detach().cpu() for column in columns if path in column]
        if len(tensors) != len(columns) or not all(tensor.dim() for tensor in (leaf, *tensors)):
            return ()
        if sum(map(len, tensors)) != len(leaf):
            return ()
        whole = leaf.detach().cpu()
        if same_numbers(whole, torch.cat(tensors)):
            continue
        common = math.gcd(*map(len, tensors))
        times = (n for n in range(2, common + 1) if common % n == 0)
        fits = (n for n in times if same_numbers(whole, _steps_first(tensors, n)))
        length = next(fits, None)
        if length is None:
            return ()
        found.append((path, length))
    return tuple(found)


def _steps_first(parts: list[torch.Tensor], length: int) -> torch.Tensor:
    """Join the rows of (length * B, ...) chunks as one device orders them: all samples of a step together."""
    apart = [part.reshape(length, len(part) // length, *part.shape[1:]) for part in parts]
    return torch.cat(apart, 1).flatten(0, 1)


def weights_for(path: str, like: torch.Tensor) -> torch.Tensor:
    """Draw the numbers that a result is weighed with before its sum goes backward; always the same ones."""
    generator = torch.Generator().manual_seed(sum(map(ord, path)) + like.numel())
    return torch.randn(like.shape, generator=generator, device="cpu").to(device=like.device, dtype=like.dtype)


def backward(value: object, only: str | None = None, weights: list[float] | None = None) -> None:
    """Send a weighed sum of a result's tensors backward, or the sum of one of them: the loss.

    `weights` are those of the loss's numbers, one for each chunk. A loss's graph is kept for other weights.
    """
    loss: Any = 0.0
    for path, leaf in floats(value).items():
        if only is None:
            loss = loss + (leaf * weights_for(path, leaf)).sum().real
        elif path == only:
            weighed = leaf if weights is None else leaf.flatten() * torch.tensor(weights, device=leaf.device)
            loss = weighed.sum()
    if isinstance(loss, torch.Tensor):
        loss.backward(retain_graph=only is not None)  # type: ignore[no-untyped-call] # PyTorch's own


def scalar_path(single: object, parallel: object) -> str | None:
    """Find a single number of the one-device result that became a vector: a loss taken in each replica."""
    became_vectors = (
        path
        for path, leaf, parts in _pairs(single, parallel)
        if leaf.numel() == 1 < parts.numel() and leaf.requires_grad and parts.requires_grad
    )
    return next(became_vectors, None)


def reduced_numbers(single: object, parallel: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """List the single numbers of one device's result that became vectors, of a number from each replica.

    Returns:
        Those that are the sums of these, and those with a fraction that are neither sums nor means.

    """
    sums, neither = [], []
    for path, leaf, parts in _pairs(single, parallel):
        if leaf.numel() == 1 < parts.numel():
            is_sum = _is_number(leaf, parts.sum())
            sums += [path] * (is_sum and bool(parts.any()))  # of nothing but zeros the sum is the mean too
            is_known = is_sum or not leaf.is_floating_point() or _is_number(leaf, parts.mean())
            neither += [path] * (not is_known)
    return tuple(sums), tuple(neither)


def _is_number(leaf: torch.Tensor, number: torch.Tensor) -> bool:
    return same_numbers(leaf.flatten(), number.to(leaf.dtype).reshape(1))


@dataclass(frozen=True)
class Gradients:
    """Whether two models' gradients are equal, and all numbers."""

    equal: bool
    finite: bool
    single_finite: bool


def is_coarse(value: object) -> bool:
    """Return whether half precision took part in a result anywhere, so that rounding makes gradients differ.

    An autocast inside forward leaves it in the history alone: the last layer may return float32.
    """
    left = [tensor.grad_fn for tensor in floats(value).values()]
    seen: set[Any] = {None}
    while left:
        node: Any = left.pop()
        if node in seen:
            continue
        seen.add(node)
        if any(output.dtype in _HALF for output in node._input_metadata):
            return True
        left += [before for before, _ in node.next_functions]
    return any(tensor.dtype in _HALF for tensor in tensors_in(value))


def compare_gradients(single: nn.Module, parallel: nn.Module, *, coarse: bool = False) -> Gradients:
    """Compare the parameters' gradients of two models that are alike."""
    names = _shared_names(single, parallel)
    alone, split = _gradients(single, names), _gradients(parallel, names)
    with unseen(*alone, *split):
        size, others_size = _inner(alone, alone), _inner(split, split)
        apart = [other - before for before, other in zip(alone, split, strict=True)]
        difference = _inner(apart, apart)
    loose = _OF_GRADIENTS * whole_model_tolerance("bfloat16" if coarse else "float32").relative
    return Gradients(
        equal=math.sqrt(difference) <= loose * math.sqrt(size) + 1e-6 if math.isfinite(difference) else False,
        finite=math.isfinite(others_size),
        single_finite=math.isfinite(size),
    )


def loss_gradients(single: nn.Module, parallel: nn.Module, result: object, path: str) -> LossGradients | None:
    """Take the gradients of each replica's loss, and compare them with those of one GPU.

    Args:
        single: the model that ran on one GPU, after its backward.
        parallel: the model under DataParallel; its gradients are those of the loss's sum afterwards.
        result: what DataParallel returned.
        path: where the losses stand in it.

    """
    count = dict(flatten(result))[path].numel()
    names = _shared_names(single, parallel)
    alone = _gradients(single, names)
    of_each = []
    for index in range(count):
        parallel.zero_grad()
        backward(result, path, [float(index == other) for other in range(count)])
        of_each.append(_gradients(parallel, names))
    square = _inner(alone, alone)
    products = tuple(tuple(_inner(gradients, other) for other in of_each) for gradients in of_each)
    dots = tuple(_inner(gradients, alone) for gradients in of_each)
    known = all(map(math.isfinite, (square, *dots, *itertools.chain(*products))))
    if not known or square <= 0:
        return None
    table = torch.tensor(products, dtype=torch.float64, device="cpu")
    best = torch.linalg.lstsq(
        table, torch.tensor(dots, dtype=torch.float64, device="cpu")[:, None], driver="gelsd"
    ).solution
    found = LossGradients(square, dots, products)
    return replace(found, is_sum=found.error(tuple(best.flatten().tolist())) <= UNEQUAL)


def _inner(first: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    return sum(float((left * right).sum()) for left, right in zip(first, other, strict=True))


def _shared_names(single: nn.Module, parallel: nn.Module) -> list[str]:
    """List the parameters of both: forward may tie two of one model, and of replicas alone in the other."""
    known = dict(parallel.named_parameters())
    return [name for name, _ in single.named_parameters() if name in known]


def _gradients(model: nn.Module, names: Sequence[str]) -> list[torch.Tensor]:
    """Copy gradients of a model, as numbers on the CPU; a parameter without one has zeros."""
    known = dict(model.named_parameters())
    return [
        _as_real(copy_of(torch.zeros_like(tensor) if tensor.grad is None else tensor.grad))
        for tensor in (known[name] for name in names)
    ]


def _as_real(gradient: torch.Tensor) -> torch.Tensor:
    """Give a gradient as real numbers of float32 or more; a complex number has two."""
    if gradient.is_complex():
        gradient = torch.view_as_real(gradient.resolve_conj())
    wide = torch.promote_types(gradient.dtype, torch.float32)
    return gradient if gradient.dtype == wide else gradient.to(wide)

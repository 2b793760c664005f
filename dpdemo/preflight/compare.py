"""Comparing DataParallel's result and gradients with those of one device."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dpdemo.preflight.leaves import flatten
from dpdemo.preflight.state import same_numbers

Leaves = list[tuple[str, Any]]


def floats(value: Any) -> dict[str, torch.Tensor]:
    """List the tensors of a result that gradients can flow through."""
    return {
        path: leaf
        for path, leaf in flatten(value)
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.numel() > 0
    }


def first_difference(one: Any, other: Any) -> tuple[bool | None, str | None, float]:
    """Compare two results: equal or not (None: not of one shape), what differs first, and by how much."""
    left, right = dict(flatten(one)), dict(flatten(other))
    for path in (*left, *right):
        if path not in left or path not in right:
            return None, path, 0.0
    for path, leaf in left.items():
        twin = right[path]
        if not isinstance(leaf, torch.Tensor) or not isinstance(twin, torch.Tensor):
            continue
        if leaf.shape != twin.shape:
            return None, path, 0.0
        if not same_numbers(leaf, twin):
            gap = (leaf.detach().cpu().double() - twin.detach().cpu().double()).abs().max().item()
            return False, path, gap
    return True, None, 0.0


def joined(outputs: list[Any], dim: int) -> Any:
    """Join the results of chunks as gather would, without its restrictions; None where they do not fit."""
    columns = [dict(flatten(output)) for output in outputs]
    result = {}
    for path, first in columns[0].items():
        if not isinstance(first, torch.Tensor):
            continue
        parts = [column.get(path) for column in columns]
        try:
            result[path] = torch.cat([part.detach().cpu() for part in parts], dim)  # type: ignore[union-attr]
        except (AttributeError, RuntimeError, IndexError):
            return None
    return result


def weights_for(path: str, like: torch.Tensor) -> torch.Tensor:
    """Draw the numbers that a result is weighed with before its sum goes backward; always the same ones."""
    generator = torch.Generator().manual_seed(sum(map(ord, path)) + like.numel())
    return torch.randn(like.shape, generator=generator, device="cpu").to(device=like.device, dtype=like.dtype)


def backward(value: Any, only: str | None = None, weights: list[float] | None = None) -> None:
    """Send a weighed sum of a result's tensors backward, or the sum of one of them: the loss.

    `weights` are those of the loss's numbers, one for each chunk. A loss's graph is kept for other weights.
    """
    loss: Any = 0.0
    for path, leaf in floats(value).items():
        if only is None:
            loss = loss + (leaf * weights_for(path, leaf)).sum()
        elif path == only:
            loss = (leaf if weights is None else leaf * torch.tensor(weights, device=leaf.device)).sum()
    if isinstance(loss, torch.Tensor):
        loss.backward(retain_graph=only is not None)  # type: ignore[no-untyped-call] # PyTorch's own


def scalar_path(single: Any, parallel: Any) -> str | None:
    """Find a single number of the one-device result that became a vector: a loss taken in each replica."""
    many = floats(parallel)
    for path, leaf in floats(single).items():
        if leaf.numel() == 1 and path in many and many[path].numel() > 1:
            return path
    return None


@dataclass(frozen=True)
class Gradients:
    """How two models' gradients relate: equal, or `factor` times (with `proportional`), or neither."""

    equal: bool
    factor: float | None
    proportional: bool
    finite: bool
    single_finite: bool


def is_coarse(value: Any) -> bool:
    """Whether a result has numbers of half precision, and so gradients that rounding makes differ."""
    half = (torch.float16, torch.bfloat16)
    return any(isinstance(leaf, torch.Tensor) and leaf.dtype in half for _, leaf in flatten(value))


def compare_gradients(single: nn.Module, parallel: nn.Module, *, coarse: bool = False) -> Gradients:
    """Compare the parameters' gradients of two models that are alike."""
    pairs = list(zip(_gradients(single), _gradients(parallel), strict=True))
    size = sum(_dot(one, one) for one, _ in pairs)
    size_parallel = sum(_dot(other, other) for _, other in pairs)
    factor = sum(_dot(one, other) for one, other in pairs) / size if size > 0 else None
    difference = sum(_dot(other - one, other - one) for one, other in pairs)
    scale = factor if factor is not None and math.isfinite(factor) else 0.0
    left_over = sum(_dot(rest, rest) for rest in (other - scale * one for one, other in pairs))
    loose = 5e-2 if coarse else 1e-3
    return Gradients(
        equal=math.sqrt(difference) <= loose * math.sqrt(size) + 1e-6 if math.isfinite(difference) else False,
        factor=factor,
        proportional=left_over <= loose**2 * (size_parallel + 1e-20),
        finite=math.isfinite(size_parallel),
        single_finite=math.isfinite(size),
    )


def _dot(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one * other).sum())


def _gradients(model: nn.Module) -> list[torch.Tensor]:
    found = [
        torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for parameter in model.parameters()
    ]
    return [one.detach().cpu().to(torch.promote_types(one.dtype, torch.float32)) for one in found]

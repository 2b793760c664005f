"""The operators that draw random numbers on CUDA, by name.

Each takes the operator's arguments by their names in its schema, and what to draw with, and returns the
result. Operators that are not here, or return NotImplemented, draw from a generator of the CPU that is seeded
from the GPU's: numbers of the right distribution, other than a card's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.cuda_random import fills
from dpdemo.virtual.cuda_random.launch import NumberSource, empty
from dpdemo.virtual.cuda_random.layouts import native_dropout, randperm

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Given = dict[str, Any]
    Distribution = Callable[[Given, NumberSource], Any]

_aten = torch.ops.aten
# How far an operator that is not here moves a GPU's generator (the kernels' `philox_cuda_state(…)`)
ALIKE = {"poisson": 20, "binomial": 42, "_standard_gamma": 10, "_sample_dirichlet": 10}
ALIKE |= dict.fromkeys(("bernoulli", "bernoulli_"), 10)
_FILLS: dict[str, tuple[Callable[..., None], tuple[str, ...]]] = {
    "uniform": (fills.uniform, ("from", "to")),
    "normal": (fills.normal, ("mean", "std")),
    "random": (fills.random, ("from", "to")),
}


def _filling(name: str, *, in_place: bool) -> Distribution:
    apply, parameters = _FILLS[name]

    def draw(given: Given, drawing: NumberSource) -> Tensor:
        target: Tensor = given["self"] if in_place else _like(given["self"])
        apply(target, *_parameters(given, parameters), drawing)
        return target

    return draw


def _making(name: str, *parameters: float) -> Distribution:
    def draw(given: Given, drawing: NumberSource) -> Tensor:
        target = _new(given)
        _FILLS[name][0](target, *parameters, drawing)
        return target

    return draw


def _parameters(given: Given, names: tuple[str, ...]) -> list[Any]:
    if names == ("from", "to") and "to" in given and "from" not in given:
        return [0, given["to"]]
    return [given.get(name) for name in names]


def _like(tensor: Tensor, given: Given | None = None) -> Tensor:
    given = given or {}
    options = {name: given.get(name) for name in ("dtype", "layout", "memory_format")}
    made: Tensor = _aten.empty_like.default(tensor, **options)
    return made


def _new(given: Given, *, default: torch.dtype | None = None) -> Tensor:
    """Make the tensor to be filled: like another, or of a size."""
    if "self" in given:
        return _like(given["self"], given)
    out = given.get("out")
    dtype = given.get("dtype") or (None if out is None else out.dtype)
    return empty(given["size"], dtype or default or torch.get_default_dtype())


def _randint(given: Given, drawing: NumberSource) -> Tensor:
    target = _new(given, default=torch.int64)
    high = given["high"]
    bound = int(high.item()) if isinstance(high, torch.Tensor) else high
    fills.random(target, given.get("low", 0), bound, drawing)
    return target


def _normal(given: Given, drawing: NumberSource) -> Tensor:
    """`torch.normal`: of a size, or around tensors of means and deviations (`normal_out_impl`)."""
    mean, std = given["mean"], given.get("std", 1.0)
    tensors = [value for value in (mean, std) if isinstance(value, torch.Tensor)]
    if not tensors:
        target = _new(given)
        fills.normal(target, mean, std, drawing)
        return target
    if isinstance(std, torch.Tensor):
        _check_deviations(std)
    shape = torch.broadcast_shapes(*[tensor.shape for tensor in tensors])  # type: ignore[no-untyped-call]
    target = empty(shape, tensors[0].dtype)
    if not isinstance(std, torch.Tensor):
        fills.normal(target, 0, std, drawing)
        return target.add_(mean)
    fills.normal(target, 0, 1, drawing)
    return target.mul_(std).add_(mean)


def _check_deviations(std: Tensor) -> None:
    if std.is_complex():
        raise RuntimeError("normal expects standard deviation to be non-complex")
    if std.numel() and not bool((std >= 0).all()):
        raise RuntimeError("normal expects all elements of std >= 0.0")


def _bernoulli(*, in_place: bool) -> Distribution:
    def draw(given: Given, drawing: NumberSource) -> Any:
        chance, like = given.get("p"), given["self"]
        if not isinstance(chance, (int, float)):
            return NotImplemented  # a tensor has the probabilities
        target = like if in_place else empty(like.shape, like.dtype)
        fills.bernoulli(target, chance, drawing)
        return target

    return draw


def _randperm(given: Given, drawing: NumberSource) -> Tensor:
    out = given.get("out")
    dtype = given.get("dtype") or (torch.int64 if out is None else out.dtype)
    return randperm(given["n"], dtype, drawing)


def _dropout(given: Given, drawing: NumberSource) -> tuple[Tensor, Tensor]:
    tensor = given["input"]
    if given.get("train") is False:
        return tensor.clone(), _aten.ones_like.default(tensor, dtype=torch.bool)
    if given["p"] == 1:
        return _aten.zeros_like.default(tensor), _aten.zeros_like.default(tensor, dtype=torch.bool)
    return native_dropout(tensor, 1 - given["p"], drawing)


DISTRIBUTIONS: dict[str, Distribution] = {
    **{f"{name}_": _filling(name, in_place=True) for name in _FILLS},
    **{name: _filling(name, in_place=False) for name in _FILLS},
    "normal": _normal,
    "normal_functional": _filling("normal", in_place=False),
    "bernoulli": _bernoulli(in_place=False),
    "bernoulli_": _bernoulli(in_place=True),
    **dict.fromkeys(("rand", "rand_like"), _making("uniform", 0, 1)),
    **dict.fromkeys(("randn", "randn_like"), _making("normal", 0, 1)),
    "randint": _randint,
    "randint_like": _randint,
    "randperm": _randperm,
    "native_dropout": _dropout,
}

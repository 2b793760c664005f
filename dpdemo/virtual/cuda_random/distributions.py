"""The operators that draw random numbers on CUDA, by name.

Each takes the operator's arguments by their names in its schema, and what to draw with, and returns the
result. What is not here (`ALIKE`) draws from a generator of the CPU that begins where the GPU's stands:
numbers of the right distribution, which a card would not draw; afterwards the GPU's go on as on a card.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.cuda_random import curand, fills
from dpdemo.virtual.cuda_random.launch import CPU, as_dtype, empty
from dpdemo.virtual.cuda_random.layouts import bernoulli_each, native_dropout, randperm

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from dpdemo.virtual.cuda_random.launch import Drawing

    Given = dict[str, Any]
    Distribution = Callable[[Given, Drawing], Any]

_aten = torch.ops.aten
_SAMPLES = 128  # threads of a block that samples with replacement
_DISTRIBUTIONS_AT_A_TIME = 65535
# How far each leaves a GPU's numbers behind (the kernels' `philox_cuda_state(…)`).
ALIKE = {"poisson": 20, "binomial": 42, "_standard_gamma": 10, "_sample_dirichlet": 10}
_FILLS: dict[str, tuple[Callable[..., None], tuple[str, ...]]] = {
    "uniform": (fills.uniform, ("from", "to")),
    "normal": (fills.normal, ("mean", "std")),
    "log_normal": (fills.log_normal, ("mean", "std")),
    "exponential": (fills.exponential, ("lambd",)),
    "cauchy": (fills.cauchy, ("median", "sigma")),
    "geometric": (fills.geometric, ("p",)),
    "random": (fills.random, ("from", "to")),
}


def _filling(name: str, *, in_place: bool) -> Distribution:
    apply, parameters = _FILLS[name]

    def draw(given: Given, drawing: Drawing) -> Tensor:
        target: Tensor = given["self"] if in_place else _like(given["self"])
        apply(target, *_parameters(given, parameters), drawing)
        return target

    return draw


def _making(name: str, *parameters: float) -> Distribution:
    def draw(given: Given, drawing: Drawing) -> Tensor:
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


def _randint(given: Given, drawing: Drawing) -> Tensor:
    target = _new(given, default=torch.int64)
    high = given["high"]
    bound = int(high.item()) if isinstance(high, torch.Tensor) else high
    fills.random(target, given.get("low", 0), bound, drawing)
    return target


def _normal(given: Given, drawing: Drawing) -> Tensor:
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


def _bernoulli(given: Given, drawing: Drawing) -> Tensor:
    """`torch.bernoulli`: with one probability `p`, or with the tensor's own."""
    source = given["self"]
    target = empty(source.shape, source.dtype)
    if "p" in given:
        fills.bernoulli(target, given["p"], drawing)
    else:
        _bernoulli_each(target, source, drawing)
    return target


def _bernoulli_in_place(given: Given, drawing: Drawing) -> Tensor:
    target: Tensor = given["self"]
    if isinstance(given["p"], torch.Tensor):
        _bernoulli_each(target, given["p"], drawing)
    else:
        fills.bernoulli(target, given["p"], drawing)
    return target


def _bernoulli_each(target: Tensor, chances: Tensor, drawing: Drawing) -> None:
    if not bool(((chances >= 0) & (chances <= 1)).all()) or not chances.is_floating_point():
        _aten.bernoulli.default(chances, generator=torch._C.Generator())  # PyTorch says what is wrong
    bernoulli_each(target, chances, drawing)


def _multinomial(given: Given, drawing: Drawing) -> Tensor:
    """Sample categories: by a race of exponential times, or with replacement by the sums of probabilities."""
    weights, count, again = given["self"], given["num_samples"], given.get("replacement", False)
    _check_weights(weights, count, again=again)
    if again and count > 1:
        rows = weights.reshape(-1, weights.size(-1))
        return _with_replacement(rows, count, drawing).view(*weights.shape[:-1], count)
    times = _like(weights)
    fills.exponential(times, 1, drawing)
    race: Tensor = weights / times
    if count == 1:
        return race.argmax(dim=-1, keepdim=True)
    return race.topk(count).indices


def _check_weights(weights: Tensor, count: int, *, again: bool) -> None:
    """Let PyTorch refuse what it refuses, with a generator of its own: it looks before it draws."""
    usable = weights.numel() and weights.is_floating_point() and weights.dim() in (1, 2)
    fits = count > 0 and (again or count <= weights.size(-1)) if usable else False
    if not fits or not bool(((weights >= 0) & (weights < math.inf)).all() & (weights.sum(-1) > 0).all()):
        _aten.multinomial.default(weights, count, again, generator=torch._C.Generator())


def _with_replacement(rows: Tensor, count: int, drawing: Drawing) -> Tensor:
    """Look each uniform number up among a row's sums (`sampleMultinomialWithReplacement`)."""
    num_rows, categories = rows.shape
    threads = -(-count // _SAMPLES) * _SAMPLES
    calls = -(-num_rows // _DISTRIBUTIONS_AT_A_TIME)
    place = drawing.stream.take(calls * 4)
    shares = rows / rows.sum(-1, keepdim=True)
    sums = shares.cumsum(-1)
    chosen = empty([num_rows, count], torch.int64)
    for call in range(calls):
        part = slice(call * _DISTRIBUTIONS_AT_A_TIME, (call + 1) * _DISTRIBUTIONS_AT_A_TIME)
        here = sums[part]
        bits = place.words(call, 0, len(here) * threads)
        numbers = next(iter(curand.UNIFORM.numbers(bits))).view(len(here), threads)[:, :count]
        found = torch.searchsorted(here, as_dtype(numbers, here.dtype).contiguous()).clamp_(
            max=categories - 1
        )
        _aten.copy_.default(chosen[part], _last_possible(shares[part]).gather(1, found))
    return chosen


def _last_possible(shares: Tensor) -> Tensor:
    """Return for each category the last one up to it that has a probability."""
    places = torch.ops.aten.arange.default(shares.size(-1), device=CPU).expand_as(shares)
    return torch.where(shares == 0, 0, places).cummax(-1).values


def _randperm(given: Given, drawing: Drawing) -> Tensor:
    out = given.get("out")
    dtype = given.get("dtype") or (torch.int64 if out is None else out.dtype)
    return randperm(given["n"], dtype, drawing)


def _dropout(given: Given, drawing: Drawing) -> tuple[Tensor, Tensor]:
    tensor = given["input"]
    if given.get("train") is False:
        return tensor.clone(), _aten.ones_like.default(tensor, dtype=torch.bool)
    if given["p"] == 1:
        return _aten.zeros_like.default(tensor), _aten.zeros_like.default(tensor, dtype=torch.bool)
    return native_dropout(tensor, 1 - given["p"], torch.bool, drawing)


def _fused_dropout(given: Given, drawing: Drawing) -> tuple[Tensor, Tensor]:
    return native_dropout(given["self"], given["p"], torch.uint8, drawing)


DISTRIBUTIONS: dict[str, Distribution] = {
    **{f"{name}_": _filling(name, in_place=True) for name in _FILLS},
    **{name: _filling(name, in_place=False) for name in _FILLS},
    "normal": _normal,
    "normal_functional": _filling("normal", in_place=False),
    "bernoulli": _bernoulli,
    "bernoulli_": _bernoulli_in_place,
    **dict.fromkeys(("rand", "rand_like"), _making("uniform", 0, 1)),
    **dict.fromkeys(("randn", "randn_like"), _making("normal", 0, 1)),
    "randint": _randint,
    "randint_like": _randint,
    "randperm": _randperm,
    "multinomial": _multinomial,
    "native_dropout": _dropout,
    "_fused_dropout": _fused_dropout,
}

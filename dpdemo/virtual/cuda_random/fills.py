"""The distributions that fill a tensor in place, each as its CUDA kernel computes it.

The sources are ATen/native/cuda/DistributionTemplates.h and ATen/core/TransformationHelper.h (2.13). Where a
kernel multiplies and adds, a card rounds once; float32 numbers go through float64 for that. PyTorch's own
checks of the parameters are made by its own operator, on an empty tensor. Whole numbers within bounds follow
ATen/native/DistributionTemplates.h: `random_from_to_impl`, `update_from`, `update_to`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dpdemo.virtual.cuda_random import curand
from dpdemo.virtual.cuda_random.curand import in_parts
from dpdemo.virtual.cuda_random.launch import CPU, as_dtype, computed_in, empty, fill, rounded

if TYPE_CHECKING:
    from dpdemo.virtual.cuda_random.launch import Drawing

_aten = torch.ops.aten
_RANDOM_FROM: Any = getattr(_aten.random_, "from")
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INTEGERS = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.uint16, torch.uint32, torch.uint64),
)
_DIGITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_LONG_RANGE = 2**28  # from here on integers are made of 64 bits


def uniform(target: Tensor, low: float, high: float, drawing: Drawing) -> None:
    """Fill `target` with uniform numbers from `low` on, below `high`."""
    if target.is_complex():
        uniform(_aten.view_as_real.default(target), low, high, drawing)
        return
    dtype = target.dtype
    _check(_aten.uniform_.default, dtype, low, high)
    if dtype is torch.float32 and (low, high) == (0, 1):
        fill(target, curand.UNIFORM, Tensor.frac_, drawing)  # cuRAND's bounds are (0, 1], PyTorch's [0, 1)
        return
    bottom, top = rounded(low, dtype), rounded(high, dtype)
    spread = rounded(top - bottom, dtype)

    def finish(numbers: Tensor) -> Tensor:
        values = as_dtype(_scaled(numbers, spread, bottom), dtype)
        return values.masked_fill_(values == top, bottom)

    fill(target, _uniform_source(dtype), finish, drawing)


def normal(target: Tensor, mean: float, std: float, drawing: Drawing) -> None:
    """Fill `target` with normal numbers."""
    if target.is_complex():
        _check(_aten.normal_.default, torch.float32, mean, std)
        normal(_aten.view_as_real.default(target), mean, std / math.sqrt(2), drawing)
        return
    _check(_aten.normal_.default, target.dtype, mean, std)
    _expect(target, "normal_kernel_cuda", _FLOATS)
    middle, scale = _wide(mean, target.dtype), _wide(std, target.dtype)
    fill(target, _normal_source(target.dtype), lambda numbers: _scaled(numbers, scale, middle), drawing)


def log_normal(target: Tensor, mean: float, std: float, drawing: Drawing) -> None:
    """Fill `target` with numbers whose logarithm is normal."""
    _check(_aten.log_normal_.default, target.dtype, mean, std)
    _expect(target, "log_normal_cuda", _FLOATS)
    middle, scale = _wide(mean, target.dtype), _wide(std, target.dtype)

    def finish(numbers: Tensor) -> Tensor:
        return in_parts(Tensor.exp_, _scaled(numbers, scale, middle))

    fill(target, _normal_source(target.dtype), finish, drawing)


def exponential(target: Tensor, rate: float, drawing: Drawing) -> None:
    """Fill `target` with exponentially distributed numbers, none of which is 0."""
    _check(_aten.exponential_.default, target.dtype, rate)
    _expect(target, "exponential_cuda", _FLOATS)
    tiny = torch.finfo(computed_in(target.dtype)).eps / 2
    factor = _wide(-1 / _wide(rate, target.dtype), target.dtype)

    def finish(numbers: Tensor) -> Tensor:
        ends = numbers >= 1 - tiny
        return in_parts(Tensor.log_, numbers).masked_fill_(ends, -tiny).mul_(factor)

    fill(target, _uniform_source(target.dtype), finish, drawing)


def cauchy(target: Tensor, median: float, sigma: float, drawing: Drawing) -> None:
    """Fill `target` with Cauchy distributed numbers."""
    _check(_aten.cauchy_.default, target.dtype, median, sigma)
    _expect(target, "cauchy_cuda", _FLOATS)
    middle, scale = _wide(median, target.dtype), _wide(sigma, target.dtype)
    edge = 0.0 if target.dtype is torch.float64 else torch.finfo(torch.float32).eps

    def finish(numbers: Tensor) -> Tensor:
        angles = numbers.clamp_(edge, 1 - edge).sub_(0.5).mul_(math.pi)
        return _scaled(in_parts(Tensor.tan_, angles), scale, middle)

    fill(target, _uniform_source(target.dtype), finish, drawing)


def geometric(target: Tensor, p: float, drawing: Drawing) -> None:
    """Fill `target` with the number of tries until something of probability `p` happens."""
    _check(_aten.geometric_.default, target.dtype, p)
    _expect(target, "geometric_cuda", (*_FLOATS, *_INTEGERS[:5]))
    chance = _wide(p, target.dtype)
    failing = _wide(math.log1p(-chance), target.dtype)

    def finish(numbers: Tensor) -> Tensor:
        return in_parts(Tensor.log_, numbers).div_(failing).ceil_()

    fill(target, _uniform_source(target.dtype), finish, drawing)


def bernoulli(target: Tensor, p: float, drawing: Drawing) -> None:
    """Fill `target` with ones of probability `p`, and zeros."""
    _check(_aten.bernoulli_.float, target.dtype, p)
    _expect(target, "bernoulli_scalar_cuda_", (*_FLOATS, *_INTEGERS[:6]))
    chance = _wide(p, target.dtype)
    fill(target, _uniform_source(target.dtype), lambda numbers: numbers < chance, drawing)


def random(target: Tensor, low: int | None, high: int | None, drawing: Drawing) -> None:
    """Fill `target` with integers from `low` on, below `high`; without bounds, with all that fit into it."""
    if low is None:
        _random_all(target, drawing)
        return
    _check(_RANDOM_FROM, target.dtype, low, high)
    _expect(target, "random_from_to_kernel_cuda", (*_FLOATS, *_INTEGERS))
    span, base = _span_of(target.dtype, low, high)
    long = span >= _LONG_RANGE

    def finish(bits: Tensor) -> Tensor:
        return _remainder(bits, span).add_(base)

    fill(target, curand.LONG_BITS if long else curand.BITS, finish, drawing)


def _random_all(target: Tensor, drawing: Drawing) -> None:
    """`random_` without bounds (`uniform_int`): integers that the dtype holds exactly, and none below 0."""
    dtype = target.dtype
    _expect(target, "random_kernel_cuda", (*_FLOATS, *_INTEGERS[:6]))
    largest = (
        1 if dtype is torch.bool else 2 ** _DIGITS[dtype] if dtype in _DIGITS else torch.iinfo(dtype).max
    )
    span = int(largest) + 1
    source = curand.LONG_BITS if dtype in (torch.int64, torch.float64) else curand.BITS
    fill(target, source, lambda bits: _remainder(bits, span), drawing)


def _span_of(dtype: torch.dtype, low: int, high: int | None) -> tuple[int, int]:
    """Return how many integers there are from `low` on, below `high`, and the first of them.

    A dtype of floating point must hold them without rounding one up to `high`; without `high` its integers
    end where it can no longer tell two of them apart.
    """
    if high is None and low == _SMALLEST:
        return 2**64, 0  # all 64 bits, as they are
    if dtype in _DIGITS:
        low = _lowest(dtype, low)
        high = 2 ** _DIGITS[dtype] + 1 if high is None else _highest(dtype, high)
    elif high is None:
        high = 2 if dtype is torch.bool else min(torch.iinfo(dtype).max, _LARGEST) + 1
    return high - low, low


def _lowest(dtype: torch.dtype, low: int) -> int:
    above = _held(dtype, low + 1)
    return above + _gap(dtype, low + 1) if above < low else low


def _highest(dtype: torch.dtype, high: int) -> int:
    below = _held(dtype, high - 1)
    return below - _gap(dtype, high - 1) if below >= high else high


def _held(dtype: torch.dtype, value: int) -> int:
    return int(_aten.full.default([], value, dtype=dtype, device=CPU).item())


def _gap(dtype: torch.dtype, value: int) -> int:
    """Return the distance of two neighbours of `dtype` around `value`."""
    return 1 << max(abs(value).bit_length() - _DIGITS[dtype], 0)


def _remainder(bits: Tensor, span: int) -> Tensor:
    """Return unsigned `bits` modulo `span`, of up to 2**64; in a tensor of its own.

    A 64-bit integer whose top bit is set is negative here. It is taken apart into that bit and the rest,
    whose remainders are added without leaving the range.
    """
    if span == 2**64:
        return bits.clone()
    if span > _LARGEST:  # the quotient is 0 or 1; `bits` are compared as unsigned numbers
        reached = (bits < 0) & (bits >= span - 2**64)
        return bits - reached * (span - 2**64)
    low = (bits & _LARGEST).remainder_(span)
    if not bool((bits < 0).any()):
        return low
    top = 2**63 % span
    wrapped = torch.where(low >= span - top, low - (span - top), low + top)
    return torch.where(bits < 0, wrapped, low)


def _check(op: Any, dtype: torch.dtype, *parameters: Any) -> None:
    """Let PyTorch refuse parameters in its own words: its operators look at them before the tensor."""
    op(empty([0], dtype), *parameters)


def _expect(target: Tensor, kernel: str, dtypes: tuple[torch.dtype, ...]) -> None:
    """Refuse a dtype as `AT_DISPATCH` does (ATen/Dispatch.h).

    Raises:
        NotImplementedError: `kernel` does not know the dtype of `target`.

    """
    if target.dtype not in dtypes:
        name = target.type().rpartition(".")[2].removesuffix("Tensor")
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{name}'")


def _uniform_source(dtype: torch.dtype) -> curand.Source:
    return curand.LONG_UNIFORM if dtype is torch.float64 else curand.UNIFORM


def _normal_source(dtype: torch.dtype) -> curand.Source:
    return curand.LONG_NORMAL if dtype is torch.float64 else curand.NORMAL


def _wide(value: float, dtype: torch.dtype) -> float:
    return rounded(value, computed_in(dtype))


def _scaled(numbers: Tensor, factor: float, term: float) -> Tensor:
    """Return `numbers` times `factor` plus `term`, rounded once where that can be had."""
    if not term:
        return numbers if factor == 1 else numbers.mul_(factor)
    if numbers.dtype is torch.float64:
        return numbers.mul_(factor).add_(term)
    return numbers.double().mul_(factor).add_(term).float()

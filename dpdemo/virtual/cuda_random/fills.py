"""The distributions that fill a tensor in place, each as its CUDA kernel computes it.

The sources are ATen/native/cuda/DistributionTemplates.h and ATen/core/TransformationHelper.h (2.13). Where a
kernel multiplies and adds, a card rounds once; float32 numbers go through float64 for that. PyTorch's own
operator checks the parameters and the dtype, on a tensor of one element.
"""

import math
from typing import Any

import torch
from torch import Tensor

from dpdemo.virtual.cuda_random import curand
from dpdemo.virtual.cuda_random.launch import NumberSource, as_dtype, computed_in, empty, fill, rounded

_aten = torch.ops.aten
_RANDOM_FROM: Any = getattr(_aten.random_, "from")
_LARGEST = 2**63 - 1
_LONG_RANGE = 2**28  # from here on integers are made of 64 bits
_of_the_checks = torch._C.Generator()


def uniform(target: Tensor, low: float, high: float, drawing: NumberSource) -> None:
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


def normal(target: Tensor, mean: float, std: float, drawing: NumberSource) -> None:
    """Fill `target` with normal numbers."""
    if target.is_complex():
        _check(_aten.normal_.default, torch.float32, mean, std)
        normal(_aten.view_as_real.default(target), mean, std / math.sqrt(2), drawing)
        return
    _check(_aten.normal_.default, target.dtype, mean, std)
    middle, scale = _wide(mean, target.dtype), _wide(std, target.dtype)
    source = curand.LONG_NORMAL if target.dtype is torch.float64 else curand.NORMAL
    fill(target, source, lambda numbers: _scaled(numbers, scale, middle), drawing)


def bernoulli(target: Tensor, p: float, drawing: NumberSource) -> None:
    """Fill `target` with ones of probability `p`, and zeros."""
    _check(_aten.bernoulli_.float, target.dtype, p)
    chance = _wide(p, target.dtype)
    fill(target, _uniform_source(target.dtype), lambda numbers: numbers < chance, drawing)


def random(target: Tensor, low: int | None, high: int | None, drawing: NumberSource) -> None:
    """Fill `target` with integers from `low` on, below `high`; without bounds, with all that fit into it."""
    if low is None:
        _check(_aten.random_.default, target.dtype)
        base, span = 0, _largest(target.dtype) + 1
        is_long = target.dtype in (torch.int64, torch.float64)
    else:
        _check(_RANDOM_FROM, target.dtype, low, high)
        base, span = low, (_largest(target.dtype) + 1 if high is None else high) - low
        is_long = span >= _LONG_RANGE
    source = curand.LONG_BITS if is_long else curand.BITS
    fill(target, source, lambda bits: _remainder(bits, span).add_(base), drawing)


def _largest(dtype: torch.dtype) -> int:
    """Return the end of the integers from 0 on that a dtype tells apart."""
    if dtype.is_floating_point:
        return int(2 / torch.finfo(dtype).eps)
    return 1 if dtype is torch.bool or dtype.is_complex else int(min(torch.iinfo(dtype).max, _LARGEST))


def _remainder(bits: Tensor, span: int) -> Tensor:
    """Return unsigned `bits` modulo `span`, of up to 2**64, in a new tensor.

    A 64-bit integer whose top bit is set is negative here. It is taken apart into that bit and the rest,
    whose remainders are added without leaving the range.
    """
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
    """Raise PyTorch's errors about parameters and dtypes."""
    op(empty([1], dtype), *parameters, generator=_of_the_checks)


def _uniform_source(dtype: torch.dtype) -> curand.Source:
    return curand.LONG_UNIFORM if dtype is torch.float64 else curand.UNIFORM


def _wide(value: float, dtype: torch.dtype) -> float:
    return rounded(value, computed_in(dtype))


def _scaled(numbers: Tensor, factor: float, term: float) -> Tensor:
    """Return `numbers` times `factor` plus `term`, rounded once where float64 allows it."""
    if not term:
        return numbers if factor == 1 else numbers.mul_(factor)
    if numbers.dtype is torch.float64:
        return numbers.mul_(factor).add_(term)
    return numbers.double().mul_(factor).add_(term).float()

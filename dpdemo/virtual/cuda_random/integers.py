"""Whole numbers within bounds, from bits: what `random_(from, to)` and `randint` compute.

The rules are those of ATen/native/DistributionTemplates.h: `random_from_to_impl`, `update_from`, `update_to`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

DIGITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def span_of(dtype: torch.dtype, low: int, high: int | None) -> tuple[int, int]:
    """Return how many integers there are from `low` on, below `high`, and the first of them.

    A dtype of floating point must hold them without rounding one up to `high`; without `high` its integers
    end where it can no longer tell two of them apart.
    """
    if high is None and low == _SMALLEST:
        return 2**64, 0  # all 64 bits, as they are
    if dtype in DIGITS:
        low = _lowest(dtype, low)
        high = 2 ** DIGITS[dtype] + 1 if high is None else _highest(dtype, high)
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
    return int(torch.ops.aten.full.default([], value, dtype=dtype, device=torch.device("cpu")).item())


def _gap(dtype: torch.dtype, value: int) -> int:
    """Return the distance of two neighbours of `dtype` around `value`."""
    return 1 << max(abs(value).bit_length() - DIGITS[dtype], 0)


def remainder(bits: Tensor, span: int) -> Tensor:
    """Return unsigned `bits` modulo `span`, of up to 2**64; in a tensor of its own.

    A 64-bit integer whose top bit is set is negative here. It is taken apart into that bit and the rest,
    whose remainders are added without leaving the range.
    """
    if span == 2**64:
        return bits.clone()
    if span > _LARGEST:  # the quotient is 0 or 1
        reached = _unsigned_at_least(bits, span)
        return bits - reached * (span - 2**64)
    low = (bits & _LARGEST).remainder_(span)
    if not bool((bits < 0).any()):
        return low
    top = 2**63 % span
    wrapped = torch.where(low >= span - top, low - (span - top), low + top)
    return torch.where(bits < 0, wrapped, low)


def _unsigned_at_least(bits: Tensor, bound: int) -> Tensor:
    """Compare as unsigned numbers; `bound` has the top bit set."""
    return (bits < 0) & (bits >= bound - 2**64)

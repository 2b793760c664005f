"""NCCL's arithmetic: a reduction of one type in a form that gloo can run.

gloo and NCCL differ where they average (gloo divides the sum, NCCL multiplies floats by 1/ranks first and
divides whole numbers last), in booleans (NCCL's sum is an "or"), in NaN (NCCL's MIN and MAX skip it) and in
eight-bit floats, which gloo lacks. Sources: `hostToDevRedOp` in src/enqueue.cc and src/device/reduce_kernel.h
of NCCL 2.30 (fminf, __hmin and their like return the operand that is a number), `getNcclReduceOp` of
PyTorch's ProcessGroupNCCL.cpp and nccl2/ProcessGroupNCCLUtils.cpp (the sum of booleans).

NCCL's order of sums is not repeated: with more than two ranks the last bits of a float can differ.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)  # the numbers of ReduceOp.RedOpType
FLOAT8 = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})
"""The eight-bit floats that NCCL adds up."""
_KEYS = {torch.float64: torch.int64}
_WIDER = {torch.float16, torch.bfloat16, *FLOAT8}


class Form(NamedTuple):
    """How gloo runs a reduction."""

    reduction: int
    """The number of gloo's: the program's own, or SUM."""
    before: Callable[[Tensor, bool], Tensor] | None = None
    """Make of contiguous numbers what gloo reduces; the flag: these may be overwritten. None: as they are."""
    after: Callable[[Tensor], Tensor] | None = None
    """Make of gloo's result the numbers; None: it has the bits of the numbers themselves."""


def form_of(dtype: torch.dtype, reduction: int, size: int, factor: float | Tensor = 1.0) -> Form:
    """Return the form of a reduction over `size` ranks; `factor` is that of PREMUL_SUM."""
    if dtype is torch.bool:
        return _of_booleans(reduction)
    if not dtype.is_floating_point:
        if reduction == AVG:
            return Form(SUM, None, lambda total: total.div(size, rounding_mode="trunc"))
        return Form(reduction)
    if reduction in {MIN, MAX}:
        return _extreme(dtype, reduction)
    scale = None
    if reduction in {AVG, PREMUL_SUM}:
        reduction, scale = SUM, _as_scale(1 / size if reduction == AVG else factor, dtype)
    if dtype in FLOAT8:
        return _in_half(dtype, reduction, scale)
    return Form(reduction, None if scale is None else _scaling(scale))


def _of_booleans(reduction: int) -> Form:
    """Reduce bytes; a sum is true where one rank's is, however many are."""
    if reduction == SUM:
        return Form(SUM, lambda given, _: given.int(), lambda total: total != 0)
    return Form(reduction, lambda given, _: given.view(torch.uint8))


def _as_scale(factor: float | Tensor, dtype: torch.dtype) -> Tensor:
    """Return a factor rounded to the type of the numbers, by way of float32 as NCCL does it."""
    if isinstance(factor, torch.Tensor):
        return factor.detach().to(dtype).reshape(())
    given = torch.tensor(factor, dtype=torch.float64, device="cpu")
    return given if dtype is torch.float64 else given.float().to(dtype)


def _scaling(scale: Tensor) -> Callable[[Tensor, bool], Tensor]:
    return lambda given, is_ours: given.mul_(scale) if is_ours else given.mul(scale)


def _in_half(dtype: torch.dtype, reduction: int, scale: Tensor | None) -> Form:
    """Reduce eight-bit floats in float16, as NCCL does it, though it rounds after each rank."""

    def before(given: Tensor, _: bool) -> Tensor:
        wide = given.half()
        return wide if scale is None else _narrowed(wide * scale.half(), dtype).half()

    return Form(reduction, before, lambda total: _narrowed(total, dtype))


def _narrowed(wide: Tensor, dtype: torch.dtype) -> Tensor:
    """Round to eight bits; a number past the largest becomes the largest (`__NV_SATFINITE`)."""
    largest = torch.finfo(dtype).max
    return wide.float().clamp(-largest, largest).to(dtype)


def _extreme(dtype: torch.dtype, reduction: int) -> Form:
    """Compare floats as whole numbers of the same order, of which NaN is the last to be chosen."""
    key = _KEYS.get(dtype, torch.int32)
    bounds = torch.iinfo(key)
    last = bounds.max if reduction == MIN else bounds.min
    wide = torch.float32 if dtype in _WIDER else dtype

    def before(given: Tensor, _: bool) -> Tensor:
        given = given.to(wide)
        return _turned(given.view(key), bounds).masked_fill_(given.isnan(), last)

    return Form(reduction, before, lambda keys: _turned(keys, bounds).view(wide).to(dtype))


def _turned(bits: Tensor, bounds: torch.iinfo) -> Tensor:
    """Turn the bits of floats into whole numbers of the same order, and back."""
    return bits ^ ((bits >> (bounds.bits - 1)) & bounds.max)

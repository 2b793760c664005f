"""Operators that only CUDA's build has, computed here by those that the CPU has too.

Each takes the operands on their GPU and returns what CUDA would. What is not here, and the CPU cannot run, is
an `UnsupportedOpError` with the operator's name.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dpdemo.virtual.applying import wraps
from dpdemo.virtual.labels import gpu_of
from dpdemo.virtual.ops.special import on

_aten: Any = torch.ops.aten
_WIDER = {torch.float16: torch.float32, torch.complex32: torch.complex64}


def _product(op: Any) -> Callable[..., Tensor]:
    """Build a matrix product with `out_dtype`: the narrow operands, added up and returned wide."""

    def run(*operands: Any, **options: Any) -> Tensor:
        *tensors, wide = (operand for operand in operands if not isinstance(operand, (int, float)))
        narrow = {tensor.dtype for tensor in tensors[-2:]}
        if narrow - {wide} and not (wide is torch.float32 and narrow <= {torch.float16, torch.bfloat16}):
            # native/cuda/Blas.cpp
            raise RuntimeError("out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs")
        result: Tensor = op(*(tensor.to(wide) for tensor in tensors), **options)
        return result

    return run


for _packet in (_aten.mm, _aten.bmm, _aten.addmm, _aten.baddbmm):
    for _wide, _plain in (("dtype", "default"), ("dtype_out", "out")):
        if hasattr(_packet, _wide):
            on("on_gpu", getattr(_packet, _wide), why="the CPU has no `out_dtype`")(
                _product(getattr(_packet, _plain))
            )

_TRANSFORMS = (
    *("fft", "fft2", "fftn", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ihfft", "ihfft2", "ihfftn"),
    *("irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftn"),
)


@wraps(torch.fft, *_TRANSFORMS, why="C++ knows half precision on CUDA only")
def _half_fft(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Build a stand-in for a function of `torch.fft`, which C++ has for half precision on CUDA only."""

    @functools.wraps(original)
    def transform(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:  # noqa: A002 - PyTorch's own
        wide = _WIDER.get(input.dtype)
        if wide is None or gpu_of(input) is None:
            return original(input, *args, **kwargs)
        result = original(input.to(wide), *args, **kwargs)
        return result.to(torch.complex32 if result.is_complex() else torch.float16)

    return transform

"""`rms_norm` as CUDA runs it: one kernel, which keeps its input and one number per row.

The CPU has no such kernel and takes the norm apart, keeping several copies of the input
(`rms_norm_composite`, aten/src/ATen/native/layer_norm.cpp; CUDA's is `_fused_rms_norm_cuda`,
aten/src/ATen/native/cuda/layer_norm_kernel.cu).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.applying import stands_in
from dpdemo.virtual.ops.casting import cast_to_float32
from dpdemo.virtual.ops.fused import FUSED, Kernel, is_plain, run_fused
from dpdemo.virtual.transfer import device_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_rms_norm: Any = torch.rms_norm
_KEPT_BYTES = 4  # the reciprocal of a row's root mean square, in float32 for all narrower dtypes


@stands_in(torch, "rms_norm", why=FUSED)
@functools.wraps(_rms_norm)
def rms_norm(
    input: Tensor,  # noqa: A002 - PyTorch's own
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Stand in for `torch.rms_norm`."""
    homes = {device_index(tensor) for tensor in (input, weight) if tensor is not None}
    is_whole = tuple(input.shape[input.dim() - len(normalized_shape) :]) == tuple(normalized_shape)
    if None in homes or len(homes) > 1 or not is_plain() or not is_whole or not input.numel():
        result: Tensor = _rms_norm(input, normalized_shape, weight, eps)
        return result
    data, *rest = cast_to_float32(input, *([] if weight is None else [weight]))
    shape = list(normalized_shape)

    def run(data: Tensor, weight: Tensor | None) -> tuple[Tensor, ...]:
        return (_rms_norm(data, shape, weight, eps),)

    rows = data.numel() // max(1, torch.Size(shape).numel())
    kept = rows * max(_KEPT_BYTES, data.element_size())
    kernel = Kernel(run, _like, kept, keeps_result=False)
    return run_fused(kernel, data, rest[0] if rest else None)[0]


def _like(data: Tensor, _: Tensor | None) -> tuple[Tensor, ...]:
    return (torch.empty_like(data, memory_format=torch.contiguous_format),)

"""Functions that are one kernel on CUDA and several on the CPU: `dropout`, `rms_norm`, `ctc_loss`."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dpdemo.virtual.applying import stands_in
from dpdemo.virtual.labels import gpu_of, gpus_of
from dpdemo.virtual.ops.casting import cast_for_autocast
from dpdemo.virtual.ops.fused import FUSED, Kernel, is_plain, run_fused

_dropout: Any = torch.dropout
_rms_norm: Any = torch.rms_norm
_ctc_loss: Any = torch.ctc_loss
_KEPT_BYTES = 4  # the reciprocal of a row's root mean square, in float32 for all narrower dtypes
_NONE, _MEAN = 0, 1  # at::Reduction


@stands_in(torch._VF, why="its mask is smaller on CUDA: a byte per element")
@stands_in(torch, why="its mask is smaller on CUDA: a byte per element")
@functools.wraps(_dropout)
def dropout(input: Tensor, p: float, train: bool) -> Tensor:  # noqa: A002 - PyTorch's own
    """Drop as CUDA's operator, which the CPU has too (`is_fused_kernel_acceptable`, native/Dropout.cpp)."""
    if train and 0 < p < 1 and input.numel() and gpu_of(input) is not None:
        return torch.native_dropout(input, p, train)[0]
    result: Tensor = _dropout(input, p, train)
    return result


@stands_in(torch, "rms_norm", why=FUSED)
@functools.wraps(_rms_norm)
def rms_norm(
    input: Tensor,  # noqa: A002 - PyTorch's own
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """Keep the input and one number per row, as `_fused_rms_norm_cuda` (native/cuda/layer_norm_kernel.cu)."""
    homes = gpus_of((input, weight))
    is_whole = tuple(input.shape[input.dim() - len(normalized_shape) :]) == tuple(normalized_shape)
    if None in homes or len(homes) > 1 or not is_plain() or not is_whole or not input.numel():
        result: Tensor = _rms_norm(input, normalized_shape, weight, eps)
        return result
    data, weight = cast_for_autocast(input, weight, dtype=torch.float32)
    shape = list(normalized_shape)

    def run(data: Tensor, weight: Tensor | None) -> tuple[Tensor, ...]:
        return (_rms_norm(data, shape, weight, eps),)

    rows = data.numel() // max(1, torch.Size(shape).numel())
    kept = rows * max(_KEPT_BYTES, data.element_size())
    kernel = Kernel(run, _like, kept, keeps_result=False)
    return run_fused(kernel, data, weight)[0]


def _like(data: Tensor, _: Tensor | None) -> tuple[Tensor, ...]:
    return (torch.empty_like(data, memory_format=torch.contiguous_format),)


@stands_in(torch, "ctc_loss", why="it divides by lengths that may be on the CPU")
@functools.wraps(_ctc_loss)
def ctc_loss(  # noqa: PLR0913, PLR0917 - PyTorch's own
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = _MEAN,
    zero_infinity: bool = False,
) -> Tensor:
    """Take the mean over the lengths where the scores are; the lengths may be on the CPU.

    CUDA's build copies the lengths beside the losses (`ctc_loss_impl`, native/LossCTC.cpp). Below a dispatch
    mode C++ keeps the tensor that it was given.
    """
    given = (log_probs, targets, input_lengths, target_lengths, blank)
    if reduction != _MEAN or not isinstance(target_lengths, torch.Tensor) or gpu_of(log_probs) is None:
        result: Tensor = _ctc_loss(*given, reduction, zero_infinity)
        return result
    losses = _ctc_loss(*given, _NONE, zero_infinity)
    lengths = target_lengths.to(losses.device, losses.dtype).clamp_min(1)
    mean: Tensor = (losses / lengths).mean()
    return mean

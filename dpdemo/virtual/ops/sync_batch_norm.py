"""The five operators of `nn.SyncBatchNorm`, which only CUDA's build has (native/cuda/Normalization.cuh).

Statistics have the accumulating type: float32 for float16 and bfloat16.
"""

from typing import Any

import torch
from torch import Tensor

from dpdemo.virtual.ops.special import on

_aten: Any = torch.ops.aten
_WHY = "only CUDA's build has it"


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in {torch.float16, torch.bfloat16} else tensor


def _rows(data: Tensor) -> list[int]:
    """Return the dimensions of a batch without its channels."""
    return [0, *range(2, data.dim())]


def _along(channels: Tensor, data: Tensor) -> Tensor:
    """Return a view of one number per channel that broadcasts over `data`."""
    return channels.view(1, -1, *[1] * (data.dim() - 2))


@on("on_gpu", _aten.batch_norm_stats.default, why=_WHY)
def _stats(data: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return this rank's mean and 1 / standard deviation of each channel."""
    variance, mean = torch.var_mean(_wide(data), _rows(data), correction=0)
    return mean, (variance + eps).rsqrt()


@on("on_gpu", _aten.batch_norm_gather_stats_with_counts.default, why=_WHY)
def _gather_with_counts(  # noqa: PLR0913, PLR0917 - the operator's own arguments
    data: Tensor,  # noqa: ARG001
    means: Tensor,
    invstds: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Combine the ranks' statistics, and update the running ones."""
    rows = counts.to(means.dtype).unsqueeze(1)
    total = rows.sum()
    mean = (means * rows).sum(0) / total
    squares = ((invstds.pow(-2) - eps + (means - mean).square()) * rows).sum(0)
    if running_mean is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
    if running_var is not None:
        running_var.lerp_((squares / (total - 1)).to(running_var.dtype), momentum)
    return mean, (squares / total + eps).rsqrt()


@on("on_gpu", _aten.batch_norm_elemt.default, why=_WHY)
def _normalise(  # noqa: PLR0913, PLR0917 - the operator's own arguments
    data: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    eps: float,  # noqa: ARG001
) -> Tensor:
    result = (_wide(data) - _along(mean, data)) * _along(invstd, data)
    if weight is not None:
        result = result * _along(weight, data)
    if bias is not None:
        result = result + _along(bias, data)
    return result.to(data.dtype)


@on("on_gpu", _aten.batch_norm_backward_reduce.default, why=_WHY)
def _backward_reduce(  # noqa: PLR0913, PLR0917 - the operator's own arguments
    gradient: Tensor,
    data: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    needs_input: bool,
    needs_weight: bool,
    needs_bias: bool,
) -> tuple[Tensor | None, ...]:
    """Return the sums over this rank's rows that the gradients are made of."""
    wide = _wide(gradient)
    sum_dy = wide.sum(_rows(data))
    sum_dy_xmu = (wide * (_wide(data) - _along(mean, data))).sum(_rows(data))
    dtype = sum_dy.dtype if weight is None else weight.dtype
    return (
        sum_dy if needs_input else None,
        sum_dy_xmu if needs_input else None,
        (sum_dy_xmu * invstd).to(dtype) if needs_weight else None,
        sum_dy.to(dtype, copy=True) if needs_bias else None,
    )


@on("on_gpu", _aten.batch_norm_backward_elemt.default, why=_WHY)
def _backward_input(  # noqa: PLR0913, PLR0917 - the operator's own arguments
    gradient: Tensor,
    data: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    counts: Tensor,
) -> Tensor:
    """Return the gradient of the input, from sums over all ranks' rows."""
    total = counts.sum()
    projected = (_wide(data) - _along(mean, data)) * _along(invstd.square() * sum_dy_xmu / total, data)
    scale = invstd if weight is None else invstd * weight
    result = (_wide(gradient) - _along(sum_dy / total, data) - projected) * _along(scale, data)
    return result.to(data.dtype)

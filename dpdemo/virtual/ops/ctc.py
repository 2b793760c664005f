"""`ctc_loss`: lengths may be on the CPU, and the mean over them is where the scores are.

CUDA's build reads the lengths and makes a tensor of them beside the losses (`ctc_loss_impl`,
native/LossCTC.cpp). Below a dispatch mode C++ keeps the tensor that it was given, which may be on the CPU.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.applying import stands_in
from dpdemo.virtual.transfer import device_index

if TYPE_CHECKING:
    from torch import Tensor

_ctc_loss: Any = torch.ctc_loss
_NONE, _MEAN = 0, 1  # at::Reduction


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
    """Stand in for `torch.ctc_loss`."""
    given = (log_probs, targets, input_lengths, target_lengths, blank)
    if reduction != _MEAN or not isinstance(target_lengths, torch.Tensor) or device_index(log_probs) is None:
        result: Tensor = _ctc_loss(*given, reduction, zero_infinity)
        return result
    losses = _ctc_loss(*given, _NONE, zero_infinity)
    lengths = target_lengths.to(losses.device, losses.dtype).clamp_min(1)
    mean: Tensor = (losses / lengths).mean()
    return mean

"""`dropout` as CUDA runs it: it keeps a mask of one byte per element, where the CPU keeps a number.

The CPU has CUDA's operator too (`native_dropout`), and it draws the same numbers.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.applying import stands_in
from dpdemo.virtual.transfer import device_index

if TYPE_CHECKING:
    from torch import Tensor

_dropout: Any = torch.dropout


@stands_in(torch._VF, "dropout", why="its mask is smaller on CUDA")
@stands_in(torch, "dropout", why="its mask is smaller on CUDA")
@functools.wraps(_dropout)
def dropout(input: Tensor, p: float, train: bool) -> Tensor:  # noqa: A002 - PyTorch's own
    """Stand in for `torch.dropout`; `is_fused_kernel_acceptable` (native/Dropout.cpp) says what is fused."""
    if train and 0 < p < 1 and input.numel() and device_index(input) is not None:
        return torch.native_dropout(input, p, train)[0]
    result: Tensor = _dropout(input, p, train)
    return result

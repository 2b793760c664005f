"""Read numbers of tensors for notes, below the emulation: no operator is counted, no byte is moved."""

from __future__ import annotations

import ctypes
import zlib
from typing import Any

import torch

_MAX_BYTES = 1 << 26


def checksum(tensor: torch.Tensor, start: int = 0, max_bytes: int = _MAX_BYTES) -> int:
    """Return a checksum of a tensor's first bytes, continued from `start`."""
    if not is_plain(tensor):
        return start
    with torch._C._DisableTorchDispatch():
        if not tensor.is_contiguous():
            tensor = torch.Tensor.contiguous(torch.Tensor.detach(tensor))
        length = min(tensor.numel() * tensor.element_size(), max_bytes)
        if not length or not tensor.data_ptr():
            return start
        return zlib.crc32((ctypes.c_char * length).from_address(tensor.data_ptr()), start)


def values(tensor: torch.Tensor, most: int) -> list[float]:
    """Return the first numbers of a tensor; none of a class that keeps them elsewhere, such as DTensor."""
    if not is_plain(tensor):
        return []
    with torch._C._DisableTorchDispatch():
        return [torch.Tensor.item(element) for element in torch.Tensor.detach(tensor).reshape(-1)[:most]]


def value(number: Any) -> float:
    """Return a number, or the one in a tensor.

    Raises:
        ValueError: if the tensor shows no number.

    """
    if not isinstance(number, torch.Tensor):
        return float(number)
    (found,) = values(number, 1)
    return found


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has its numbers in memory of its own, one beside the other."""
    return type(tensor) in {torch.Tensor, torch.nn.Parameter} and tensor.layout is torch.strided


def is_checked(count: int) -> bool:
    """Return whether to look at the n-th step: at 1, 2, 4, 8 and so on."""
    return count & (count - 1) == 0

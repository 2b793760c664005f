"""Read numbers of tensors for notes, below the emulation: no operator is counted, no byte is moved."""

import ctypes
import zlib
from typing import Any

import torch

_MAX_BYTES = 1 << 26
_INTEGERS = torch.int64, torch.int32, torch.int16, torch.uint8


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


def total(tensor: torch.Tensor) -> int:
    """Return the sum of a tensor's bits, read as integers: 17 times as fast as a checksum, blind to order.

    A DTensor counts with its own part.
    """
    tensor = local(tensor)
    if not is_plain(tensor) or not tensor.numel():
        return 0
    with torch._C._DisableTorchDispatch():
        flat = torch.Tensor.detach(tensor)
        if not flat.is_contiguous():
            flat = torch.Tensor.contiguous(flat)
        flat = flat.reshape(-1)
        size = flat.numel() * flat.element_size()
        wide = next(dtype for dtype in _INTEGERS if not size % dtype.itemsize)
        if flat.data_ptr() % wide.itemsize:
            wide = torch.uint8
        return int(torch.Tensor.item(torch.sum(flat.view(wide))))


def is_finite(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has finite numbers only."""
    tensor = local(tensor)
    if not is_plain(tensor) or not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    with torch._C._DisableTorchDispatch():
        plain = torch.Tensor.detach(tensor)
        found = torch.Tensor.item(torch.sum(plain))
        if found - found == 0:
            return True
        return bool(torch.Tensor.item(torch.isfinite(plain).all()))  # large numbers may add up to infinity


def local(tensor: Any) -> Any:
    """Return the rank's own part of a DTensor, and other tensors as they are."""
    return getattr(tensor, "_local_tensor", tensor)


def values(tensor: torch.Tensor, most: int) -> list[float]:
    """Return the first numbers of a tensor; none of a class that keeps them elsewhere, such as DTensor."""
    if not is_plain(tensor):
        return []
    with torch._C._DisableTorchDispatch():
        return list(torch._C.TensorBase.tolist(torch.Tensor.detach(tensor).reshape(-1)[:most]))


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
    """Return whether a tensor has numbers in memory: FSDP gives the memory of whole parameters back."""
    if type(tensor) not in {torch.Tensor, torch.nn.Parameter} or tensor.layout is not torch.strided:
        return False
    return bool(tensor.untyped_storage().nbytes())


def is_checked(count: int) -> bool:
    """Return whether to look at the n-th step: at 1, 2, 4, 8 and so on."""
    return count & (count - 1) == 0

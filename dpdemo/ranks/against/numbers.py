"""Read and set numbers of tensors below the emulation: no operator is counted, no byte is moved."""

from __future__ import annotations

import ctypes
import zlib
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.ranks.against.store import Kept, Sampled

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLE = 4096
"""Numbers that are compared of each parameter, or of each rank's shard of it."""
_MAX_ROWS = 1024
_ANGLE = 1e-5
_off: Any = torch._C._DisableTorchDispatch


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's numbers in one row, on the CPU; a shard's own if it is one."""
    local = getattr(tensor, "_local_tensor", tensor)
    with _off():
        found = torch.Tensor.detach(local)
        if found.layout is not torch.strided:
            found = torch.Tensor.to_dense(found)
        found = torch.Tensor.contiguous(found)
        if not found.numel() or found.is_meta:
            return torch.zeros(0, dtype=found.dtype, device="cpu")
        size = found.numel() * found.element_size()
        memory = (ctypes.c_char * size).from_address(found.data_ptr())
        memory._tensor = found  # type: ignore[attr-defined]  # it keeps the memory
        return torch.frombuffer(memory, dtype=found.dtype)


def picked(numbers: torch.Tensor, sizes: Sequence[int]) -> bytes:
    """Return some numbers as float32: at most `SAMPLE` of each piece of these sizes, evenly spaced."""
    with _off():
        parts = [part[:: max(1, len(part) // SAMPLE)][:SAMPLE] for part in _pieces(numbers, sizes)]
        return as_bytes(torch.cat(parts).float()) if parts else b""


def sampled(tensor: torch.Tensor, sizes: Sequence[int] = ()) -> Sampled:
    """Return some numbers of a tensor, and the norm of all; `sizes` are those of the ranks' shards."""
    numbers = flat(tensor)
    with _off():
        norm = float(torch.linalg.vector_norm(numbers, dtype=torch.float64)) if len(numbers) else 0.0
    return Sampled(picked(numbers, sizes or (len(numbers),)), norm, len(numbers))


def _pieces(numbers: torch.Tensor, sizes: Sequence[int]) -> list[torch.Tensor]:
    found, begin = [], 0
    for size in sizes:
        found.append(numbers[begin : begin + size])
        begin += size
    return found


def as_bytes(numbers: torch.Tensor) -> bytes:
    """Return the memory of a tensor on the CPU."""
    with _off():
        numbers = numbers.contiguous()
        return ctypes.string_at(numbers.data_ptr(), numbers.numel() * numbers.element_size())


def kept(tensor: torch.Tensor) -> Kept:
    """Return all numbers of a tensor."""
    local = getattr(tensor, "_local_tensor", tensor)
    return Kept(str(local.dtype), tuple(local.shape), as_bytes(flat(tensor)))


def tensor_of(value: Kept) -> torch.Tensor:
    """Return a tensor that was kept, on the CPU."""
    dtype = getattr(torch, value.dtype.removeprefix("torch."))
    if not value.data:
        return torch.empty(value.shape, dtype=dtype, device="cpu")
    return torch.frombuffer(bytearray(value.data), dtype=dtype).reshape(value.shape)


def put(tensor: torch.Tensor, data: bytes, dtype: str, nudge: float = 0.0) -> bool:
    """Set a tensor's numbers; return whether type and size fit."""
    local: Any = getattr(tensor, "_local_tensor", tensor)
    if str(local.dtype) != dtype or local.numel() * local.element_size() != len(data):
        return False
    if not data:
        return True
    with _off():
        source = torch.frombuffer(bytearray(data), dtype=local.dtype).reshape(local.shape)
        if nudge and source.is_floating_point():
            signs = torch.rand(source.shape, generator=torch.Generator().manual_seed(len(data)), device="cpu")
            source = source * (1 + nudge * (signs.to(source.dtype) - 0.5).sign())
        torch.Tensor.copy_(torch.Tensor.detach(local), source)
    return True


def projected(tensor: torch.Tensor) -> tuple[float, ...]:
    """Return a number for each row, the same to rounding wherever the row is; trailing zeros add nothing."""
    if not tensor.ndim or not tensor.numel() or tensor.dtype.is_complex:
        return ()
    numbers = flat(tensor)
    with _off():
        rows = numbers.reshape(tensor.shape[0], -1)[:_MAX_ROWS].double()
        generator = torch.Generator().manual_seed(1)
        weights = torch.rand(rows.shape[1], generator=generator, dtype=torch.float64, device="cpu") + 0.5
        found: list[float] = (rows @ weights).tolist()
    return tuple(found)


def proportional(a: bytes, b: bytes) -> bool:
    """Return whether one vector of float32 is a multiple of the other."""
    with _off():
        one, other = (torch.frombuffer(bytearray(each or bytes(4)), dtype=torch.float32) for each in (a, b))
        product = float(torch.linalg.vector_norm(one)) * float(torch.linalg.vector_norm(other))
        return float(one @ other) >= (1 - _ANGLE) * product


def checksum(value: Any) -> int:
    """Return a checksum of a batch, whatever it is made of."""
    total = 0
    for leaf in torch.utils._pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            total = zlib.crc32(repr((leaf.dtype, tuple(leaf.shape))).encode() + as_bytes(flat(leaf)), total)
        elif hasattr(leaf, "items"):  # a mapping that PyTorch does not take apart
            total = zlib.crc32(repr([(key, checksum(each)) for key, each in leaf.items()]).encode(), total)
        elif hasattr(leaf, "tobytes"):
            total = zlib.crc32(leaf.tobytes(), total)
        else:
            total = zlib.crc32(repr(leaf).encode(), total)
    return total

"""A tensor as a record: the hash of its bytes, and a few numbers that show how far off another one is."""

import ctypes
import hashlib
import math

import torch

from dpdemo.models.noise import hash_bits
from dpdemo.reports.recording import Number, TensorRecord

SAMPLES = 8
"""Values kept of each tensor, or all of them where there are no more."""

_SEED = 20260101


def record_tensor(what: str, tensor: torch.Tensor) -> TensorRecord:
    """Record one tensor, on whatever device it lies."""
    host = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    wide = _wide(host)
    return TensorRecord(
        what=what,
        device=str(tensor.device),
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        sha256=hashlib.sha256(_bytes(host)).hexdigest(),
        sum=number(float(wide.sum())),
        abs_sum=number(float(wide.abs().sum())),
        max_abs=number(float(wide.abs().max()) if wide.numel() else 0.0),
        sample=tuple(number(float(value)) for value in wide[_places(wide.numel())]),
    )


def number(value: float) -> Number:
    """Write a number that is not finite as a word."""
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def _bytes(host: torch.Tensor) -> bytes:
    # neither NumPy, which need not be there, nor bytes(storage), which asks for each byte by itself
    return ctypes.string_at(host.data_ptr(), host.nbytes) if host.nbytes else b""


def _wide(host: torch.Tensor) -> torch.Tensor:
    real = torch.view_as_real(host) if host.is_complex() else host
    return real.to(torch.float64).flatten()


def _places(size: int) -> torch.Tensor:
    """Draw the places of the sample: the same for every tensor of one size, on every machine."""
    if size <= SAMPLES:
        return torch.arange(size, device="cpu")
    return hash_bits(torch.arange(SAMPLES, device="cpu"), _SEED).bitwise_and_((1 << 62) - 1).remainder_(size)

"""The errors a virtual GPU raises: CUDA's own types and words, and three of ours where PyTorch has none.

VirtualGpuError          the emulation itself cannot do what was asked (a RuntimeError)
├── OpeningError         no block can be opened now: another is open, or real GPUs are in use (a UsageError)
└── UnsupportedOpError   an operator that virtual GPUs do not run; the message names it

Everything else is raised as PyTorch raises it on a real GPU, so that an ``except`` clause written for CUDA
catches it here too. The functions below build errors that several files raise, and name PyTorch's source.
"""

import functools
import warnings

import torch

from dpdemo.errors import UsageError
from dpdemo.virtual.blocks import segment_bytes

TESTED = ("2.11", "2.12", "2.13", "2.14", "2.15")
"""The releases of PyTorch that the suite has passed on (`tests/tools/releases.py`)."""


@functools.cache
def warn_if_untested() -> None:
    """Warn once where the installed PyTorch is none of the tested releases."""
    if not any(torch.__version__.startswith(f"{release}.") for release in TESTED):
        warnings.warn(
            f"virtual GPUs were tested on torch {TESTED[0]} to {TESTED[-1]}, and this is torch "
            f"{torch.__version__}: what that release has changed may be missing",
            stacklevel=2,
        )


class VirtualGpuError(RuntimeError):
    """Raised when virtual GPUs cannot be set up, or cannot do what was asked of them."""


class OpeningError(UsageError, VirtualGpuError):
    """Raised when no block of virtual GPUs can be opened now."""


class UnsupportedOpError(VirtualGpuError, NotImplementedError):
    """Raised for an operator that virtual GPUs do not run; the message names it."""


def two_devices(first: object, second: object) -> RuntimeError:
    """Build the error of an elementwise op over two devices (aten/src/ATen/TensorIterator.cpp)."""
    return RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{first} and {second}!"
    )


def convolution_types(input_type: str, kind: str, other_type: str, *, or_mkldnn: bool) -> RuntimeError:
    """Build the error of a convolution over a CPU and a GPU tensor (ATen/native/Convolution.cpp)."""
    hint = " or input should be a MKLDNN tensor and weight is a dense tensor" if or_mkldnn else ""
    return RuntimeError(f"Input type ({input_type}) and {kind} type ({other_type}) should be the same{hint}")


def needs_numbers(op: str) -> UnsupportedOpError:
    """Build the error of an operator that needs numbers where there are only sizes."""
    return UnsupportedOpError(
        f"{op}: expected an operator whose result has the same shape whatever the numbers are, since there "
        'are none with storage="meta"; use storage="cpu", or keep what decides (lengths, masks, losses that '
        "are printed) out of the step or on the host"
    )


def out_of_memory(index: int, nbytes: int, limit: int, in_use: int, allowed: int | None = None) -> Exception:
    """Build the error of a full GPU (c10/cuda/CUDACachingAllocator.cpp, `malloc`).

    `allowed` is what the program may use of the GPU, where it set that.
    """
    free, request = limit - in_use, segment_bytes(nbytes)
    permission = "" if allowed is None else f"{_size(allowed)} allowed; "
    return torch.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {_size(request)}. GPU {index} has a total capacity of "
        f"{_size(limit)} of which {_size(free)} is free. Including non-PyTorch memory, this process has "
        f"{_size(in_use)} memory in use. {permission}Of the allocated memory {_size(in_use)} is "
        f"allocated by PyTorch, and {_size(0)} is reserved by PyTorch but unallocated. If reserved but "
        "unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
        "fragmentation.  "
        "See documentation for Memory Management  "
        "(https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
    )


def _size(num_bytes: int) -> str:
    """Write a size as `format_size` there does."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if num_bytes > unit:
            return f"{num_bytes / unit:.2f} {name}"
    return f"{num_bytes} bytes"

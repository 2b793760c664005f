"""What a build of PyTorch for CUDA knows and one for the CPU does not: versions, libraries, their settings.

The versions are those that PyTorch 2.9's wheels for Linux were built with. Each name is the one in
`torch._C`, less its prefix, unless it says otherwise.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import torch

from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.standins.runtime import memory_info
from dpdemo.virtual.state import the_session

CUDA_VERSION = "12.8"
CUDNN_VERSION = 91002
_NCCL_VERSION = (2, 27, 5)
_ARCHITECTURES = "sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120"
_LARGEST_PLAN_CACHE = 4096  # CUFFT_DEFAULT_CACHE_SIZE (native/cuda/CuFFTPlanCache.h)


BENCHMARK_LIMIT = property(lambda _: get_benchmark_limit(), lambda _, limit: set_benchmark_limit(limit))
"""Stands in for `torch.backends.cudnn.benchmark_limit`, which a build for the CPU has as None."""


def arch_flags() -> str:
    """Return the architectures that the kernels are compiled for."""
    return _ARCHITECTURES


def allocator_backend() -> str:
    """Return which allocator there is: PyTorch's own."""
    return "native"


def nccl_version() -> int:
    """Return NCCL's version as `torch.cuda.nccl.version` takes it apart."""
    major, minor, patch = _NCCL_VERSION
    return major << 32 | minor << 16 | patch


def nccl_version_suffix() -> bytes:
    """Return the suffix of NCCL's version: none."""
    return b""


def cudnn_version() -> int:
    """Stand in for `torch.backends.cudnn.version`."""
    return CUDNN_VERSION


def get_benchmark_limit() -> int:
    """Return how many algorithms cuDNN may try."""
    return int(_setting("cudnn.benchmark_limit", 10))


def set_benchmark_limit(limit: int) -> None:
    """Note how many algorithms cuDNN may try; none is tried."""
    the_session().settings["cudnn.benchmark_limit"] = limit


def has_flash_attention() -> bool:
    """Return whether PyTorch was built with flash attention."""
    return True


def _setting(name: str, default: Any) -> Any:
    return the_session().settings.get(name, default)


def get_caching() -> bool:
    """Return whether freed memory is kept for later; none is, and nothing depends on it."""
    return bool(_setting("caching", default=True))


def set_caching(enabled: bool) -> None:
    """Note whether freed memory is to be kept."""
    the_session().settings["caching"] = enabled


def preferred(name: str, original: Any) -> tuple[Any, Any]:
    """Build stand-ins for the two functions that get and set a preferred library of CUDA."""

    def get() -> Any:
        return _setting(name, original())

    def set_(library: Any) -> None:
        the_session().settings[name] = library

    return get, set_


def get_plan_cache_limit(self: Any) -> int:
    """Return how many plans of Fourier transforms may be kept for a GPU."""
    return int(_setting(f"cufft.{self.device_index}", _LARGEST_PLAN_CACHE))


def set_plan_cache_limit(self: Any, size: int) -> None:
    """Note how many plans may be kept."""
    the_session().settings[f"cufft.{self.device_index}"] = size


def num_plans(self: Any) -> int:  # noqa: ARG001
    """Return how many plans are kept: none, the CPU's library makes the transforms."""
    return 0


def clear_plans(self: Any) -> None:
    """Forget the plans, of which none is kept."""


def get_sync_mode() -> int:
    """Return what happens where a program waits for a GPU: nothing."""
    return 0


def set_sync_mode(mode: int) -> None:
    """Take over `torch.cuda.set_sync_debug_mode`.

    Raises:
        UnsupportedOpError: a warning or an error is asked for; who waits for a GPU is not known here.

    """
    if mode:
        raise UnsupportedOpError(
            "torch.cuda.set_sync_debug_mode: expected 'default', since nothing waits for a virtual GPU; "
            "run this on a real one"
        )


def get_memory_fraction(index: int) -> float:
    """Return which part of GPU `index` this process may use."""
    return the_session().ledger.fractions.get(index, (1.0, 0))[0]


def set_memory_fraction(fraction: float, index: int) -> None:
    """Let this process use a part of GPU `index` only; what it holds already, it keeps."""
    session = the_session()
    session.check_ordinal(index)
    total = session.total_bytes(index)
    session.ledger.fractions[index] = fraction, total
    session.ledger.allow(index, int(fraction * total))


def device_memory_used(device: Any = None) -> int:
    """Stand in for `torch.cuda.device_memory_used`, which asks NVIDIA's driver."""
    index = torch.cuda._utils._get_device_index(device, optional=True)
    return the_session().ledger.live[index]


class CudaError(IntEnum):
    """`cudaError_t` of the CUDA runtime: the codes that programs compare with."""

    success = 0
    invalidValue = 1  # noqa: N815 - CUDA's own
    memoryAllocation = 2  # noqa: N815
    initializationError = 3  # noqa: N815
    invalidDevice = 101  # noqa: N815


_ERROR_WORDS = {
    CudaError.success: "no error",
    CudaError.invalidValue: "invalid argument",
    CudaError.memoryAllocation: "out of memory",
    CudaError.initializationError: "initialization error",
    CudaError.invalidDevice: "invalid device ordinal",
}


class CudaRuntime:
    """Stands in for `torch.cuda.cudart()`: the functions of the CUDA runtime that PyTorch hands out.

    Starting and stopping a profiler does nothing: there is none.
    """

    cudaError = CudaError  # noqa: N815

    @staticmethod
    def cudaGetErrorString(error: int) -> str:  # noqa: N802
        """Return CUDA's words for an error."""
        return _ERROR_WORDS.get(CudaError(error), "unrecognized error code")

    @staticmethod
    def cudaProfilerStart() -> CudaError:  # noqa: N802
        """Start NVIDIA's profiler."""
        return CudaError.success

    @staticmethod
    def cudaProfilerStop() -> CudaError:  # noqa: N802
        """Stop NVIDIA's profiler."""
        return CudaError.success

    @staticmethod
    def cudaHostRegister(address: int, size: int, flags: int) -> CudaError:  # noqa: ARG004, N802
        """Pin memory of the host; nothing is done, since no copy would be faster."""
        return CudaError.success

    @staticmethod
    def cudaHostUnregister(address: int) -> CudaError:  # noqa: ARG004, N802
        """Unpin memory of the host."""
        return CudaError.success

    cudaMemGetInfo = staticmethod(memory_info)  # noqa: N815

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedOpError(f"torch.cuda.cudart().{name}: a virtual GPU has no CUDA runtime")

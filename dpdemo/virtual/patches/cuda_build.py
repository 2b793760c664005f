"""A build of PyTorch for CUDA: its versions, settings of its libraries, and what only a real GPU can do.

The versions are those of PyTorch 2.9's wheels for Linux. No kernel here uses cuBLAS, cuDNN or cuFFT, so their
settings are kept and change nothing; a setting that would change numbers (tunable operators) is refused. Each
refusal is an error that names the function, in place of PyTorch's "dummy base class".
"""

from __future__ import annotations

import functools
import importlib
from enum import IntEnum
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch.backends.cuda
import torch.backends.cudnn

from dpdemo.virtual.applying import Patch, group, of_session, replace, stands_in
from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.patches.cuda_devices import cuda_runtime
from dpdemo.virtual.patches.cuda_memory import memory_info
from dpdemo.virtual.state import the_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpdemo.virtual.state import Session

_C: Any = torch._C
_WHY = "only a build for CUDA has it"
_CUBLAS_WORKSPACE = 4096 * 8 * 1024  # bytes, on cards of compute capability 9 (CUDABlas.cpp)
_LARGEST_PLAN_CACHE = 4096  # CUFFT_DEFAULT_CACHE_SIZE (native/cuda/CuFFTPlanCache.h)

# Functions of torch._C that always return the same value; None where nothing needs to be done.
_ANSWERS = {
    "_cuda_getArchFlags": "sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120",
    "_cuda_getAllocatorBackend": "native",
    "_cuda_getCompiledVersion": 12080,
    "_nccl_version": 2 << 32 | 27 << 16 | 5,
    "_nccl_version_suffix": b"",
    "_is_flash_attention_available": True,
    "_cuda_get_sync_debug_mode": 0,
    "_cuda_isCurrentStreamCapturing": False,
    "_cuda_memoryMetadataSupported": False,
    "_cuda_tunableop_is_enabled": False,
    "_cuda_tunableop_get_results": (),
    "_cuda_tunableop_get_validators": (),
    **dict.fromkeys(
        (
            *("_cuda_synchronize", "_accelerator_synchronizeDevice", "_cuda_emptyCache", "_cuda_ipc_collect"),
            *("_accelerator_emptyCache", "_accelerator_emptyHostCache", "_host_emptyCache", "_cuda_sleep"),
            *("_cuda_clearCublasWorkspaces", "_cudnn_clear_dropout_state"),
            *("_cuda_lock_mutex", "_cuda_unlock_mutex"),
            *("_cuda_resetAccumulatedHostMemoryStats", "_cuda_resetPeakHostMemoryStats"),
            "_cuda_tunableop_set_numerical_check_tolerances",
        )
    ),
}
# Functions of torch._C that read a setting, those that write it, and its default.
_SETTINGS: tuple[tuple[str, str, Any], ...] = (
    ("_get_linalg_preferred_backend", "_set_linalg_preferred_backend", _C._get_linalg_preferred_backend),
    ("_get_blas_preferred_backend", "_set_blas_preferred_backend", _C._get_blas_preferred_backend),
    ("_cuda_get_cudnn_benchmark_limit", "_cuda_set_cudnn_benchmark_limit", 10),
    ("_cuda_cudaCachingAllocator_is_enabled", "_cuda_cudaCachingAllocator_enable", True),
    ("_cuda_getCublasWorkspaceSize", "_cuda_setCublasWorkspaceSize", _CUBLAS_WORKSPACE),
    ("_cuda_getCublasLtWorkspaceSize", "_cuda_setCublasLtWorkspaceSize", _CUBLAS_WORKSPACE),
    ("_cuda_get_conv_benchmark_empty_cache", "_cudnn_set_conv_benchmark_empty_cache", False),
    ("_cuda_tunableop_tuning_is_enabled", "_cuda_tunableop_tuning_enable", True),
    ("_cuda_record_untuned_is_enabled", "_cuda_record_untuned_enable", False),
    ("_cuda_tunableop_get_max_tuning_duration", "_cuda_tunableop_set_max_tuning_duration", 30),
    ("_cuda_tunableop_get_max_tuning_iterations", "_cuda_tunableop_set_max_tuning_iterations", 100),
    ("_cuda_tunableop_get_rotating_buffer_size", "_cuda_tunableop_set_rotating_buffer_size", 0),
    ("_cuda_tunableop_get_filename", "_cuda_tunableop_set_filename", ""),
)
_RESETTING = {
    "_cuda_resetCublasWorkspaceSize": "_cuda_getCublasWorkspaceSize",
    "_cuda_resetCublasLtWorkspaceSize": "_cuda_getCublasLtWorkspaceSize",
}


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _get(name: str, default: Any) -> Any:
    settings = the_session().settings
    return settings[name] if name in settings else default() if callable(default) else default


def _setting(name: str, default: Any = None) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def write(value: Any, *_: Any) -> None:
        the_session().settings[name] = value

    return lambda: _get(name, default), write


for _name, _value in _ANSWERS.items():
    replace(_C, _WHY, **{_name: _constant(_value)})
for _read, _write, _default in _SETTINGS:
    replace(_C, _WHY, **dict(zip((_read, _write), _setting(_read, _default), strict=True)))
for _name, _read in _RESETTING.items():
    replace(_C, _WHY, **{_name: lambda read=_read: the_session().settings.pop(read, None)})


@stands_in(_C, "_cuda_set_sync_debug_mode", why=_WHY)
def _set_sync_mode(mode: int) -> None:
    if mode:
        raise UnsupportedOpError(
            "torch.cuda.set_sync_debug_mode: expected 'default', since nothing waits for a virtual GPU; "
            "run this on a real one"
        )


@stands_in(_C, "_cuda_tunableop_enable", why=_WHY)
def _enable_tuned_operators(enabled: bool = True) -> None:
    if enabled:
        raise UnsupportedOpError(
            "torch.cuda.tunable.enable: expected False, since a virtual GPU has no kernels to choose from; "
            "run this on a real one"
        )


def _plan_cache_setting(cache: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return _setting(f"cufft.{cache.device_index}", _LARGEST_PLAN_CACHE)


replace(
    torch.backends.cuda.cuFFTPlanCache,
    _WHY,
    size=property(_constant(0)),
    max_size=property(
        lambda self: _plan_cache_setting(self)[0](), lambda self, size: _plan_cache_setting(self)[1](size)
    ),
    clear=_constant(None),
)
_benchmark_limit = _setting("_cuda_get_cudnn_benchmark_limit", 10)
replace(
    type(torch.backends.cudnn),
    _WHY,
    benchmark_limit=property(lambda _: _benchmark_limit[0](), lambda _, limit: _benchmark_limit[1](limit)),
)
replace(
    torch.backends.cudnn,
    "it warns on CPU builds, and there is no cuDNN",
    version=_constant(91002),
    is_acceptable=_constant(False),
)


@of_session
def _version(_: Session) -> list[Patch]:
    """Let a build for the CPU name a version of CUDA; a build for CUDA keeps its own."""
    return [] if torch.version.cuda else group(torch.version, _WHY, cuda="12.8")


class _CudaError(IntEnum):
    """`cudaError_t` of the CUDA runtime: the codes that programs compare with."""

    success = 0
    invalidValue = 1  # noqa: N815 - CUDA's own
    memoryAllocation = 2  # noqa: N815
    initializationError = 3  # noqa: N815
    invalidDevice = 101  # noqa: N815


_ERROR_WORDS = {
    _CudaError.success: "no error",
    _CudaError.invalidValue: "invalid argument",
    _CudaError.memoryAllocation: "out of memory",
    _CudaError.initializationError: "initialization error",
    _CudaError.invalidDevice: "invalid device ordinal",
}


class _CudaRuntime:
    """`torch.cuda.cudart()`: the functions of the CUDA runtime that PyTorch hands out.

    Neither a profiler that starts nor memory that is pinned makes a difference here.
    """

    cudaError = _CudaError  # noqa: N815
    cudaMemGetInfo = staticmethod(memory_info)  # noqa: N815
    cudaProfilerStart = cudaProfilerStop = staticmethod(_constant(_CudaError.success))  # noqa: N815
    cudaHostRegister = cudaHostUnregister = staticmethod(_constant(_CudaError.success))  # noqa: N815

    @staticmethod
    def cudaGetErrorString(error: int) -> str:  # noqa: N802
        return _ERROR_WORDS.get(_CudaError(error), "unrecognized error code")

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedOpError(f"torch.cuda.cudart().{name}: a virtual GPU has no CUDA runtime")


_runtime = _CudaRuntime()
replace(_C, _WHY, _has_cuda=True, _has_cudnn=True, _has_magma=True, _cudart=_runtime)
replace(torch.cuda, _WHY, _cudart=_runtime, has_magma=True)
for _owner in (torch.cuda, torch.cuda.graphs):
    replace(_owner, "there are no CUDA graphs", is_current_stream_capturing=_constant(False))
_MARKS = ("rangePushA", "rangePop", "rangeStartA", "rangeEnd", "markA", "deviceRangeStart", "deviceRangeEnd")
replace(
    torch.cuda.nvtx,
    "no profiler reads its marks",
    _nvtx=SimpleNamespace(**dict.fromkeys(_MARKS, _constant(0))),
)

# --- refused by name ---

_GRAPHS = "a virtual GPU runs every operator at once and records none"
_POOLS = "a virtual GPU has no allocator to hand out pools of"
_SENSORS = "a virtual GPU has no sensors"
_STREAMS = "a virtual GPU has no streams of the CUDA runtime"
_LIBRARIES = "a virtual GPU has no libraries of CUDA's"
_DISK = "a virtual GPU reads no disks"
_PREFIXES = ("_cuda_", "_nccl_", "_gds_")

REFUSED = {
    "torch.cuda.graphs": dict.fromkeys(
        ("CUDAGraph", "graph", "graph_pool_handle", "make_graphed_callables"), _GRAPHS
    ),
    "torch.accelerator": {"Graph": _GRAPHS},
    "torch.cuda.memory": dict.fromkeys(
        ("MemPool", "use_mem_pool", "CUDAPluggableAllocator", "change_current_allocator"), _POOLS
    ),
    "torch.cuda": {
        **dict.fromkeys(("clock_rate", "power_draw", "temperature", "utilization", "memory_usage"), _SENSORS),
        "get_stream_from_external": _STREAMS,
        **dict.fromkeys(("current_blas_handle", "current_solver_handle", "_compile_kernel"), _LIBRARIES),
    },
    "torch.cuda.streams": {"ExternalStream": _STREAMS},
    "torch.cuda.green_contexts": dict.fromkeys(
        ("GreenContext", "get_num_locality_domains", "is_localization_supported"), _STREAMS
    ),
    "torch.cuda.gds": dict.fromkeys(("GdsFile", "gds_register_buffer", "gds_deregister_buffer"), _DISK),
}
"""Public names that are refused, by the module that defines them, and why."""


@of_session
def _refused_names(_: Session) -> list[Patch]:
    """Refuse public names, wherever PyTorch shows them."""
    found = []
    for module, names in REFUSED.items():
        try:
            owner = importlib.import_module(module)
        except ImportError:  # newer or older than this release
            continue
        for name, why in names.items():
            original = vars(owner).get(name)
            if original is not None:
                refusal = _refusing(f"{module}.{name}", original, why)
                shown = {owner, torch.cuda} if vars(torch.cuda).get(name) is original else {owner}
                found += [Patch(each, name, refusal, "only a real GPU has it") for each in shown]
    return found


@functools.cache
def _refusing(name: str, original: Any, why: str) -> Any:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise UnsupportedOpError(f"{name}: {why}; run this on a real one")

    if not isinstance(original, type):
        refusal: Any = functools.update_wrapper(refuse, original)
        refusal.__wrapped__ = getattr(original, "__wrapped__", original)  # the compiler looks it up
        return refusal
    ways_in = {
        name: staticmethod(refuse)
        for name, value in vars(original).items()
        if isinstance(value, (staticmethod, classmethod)) and not name.startswith("_")
    }
    body = {**ways_in, "__new__": refuse, "__module__": original.__module__, "__doc__": original.__doc__}
    return type(original)(original.__name__, (original,), body)


@functools.cache
def refused_questions() -> list[Patch]:
    """Refuse the functions of `torch._C` that ask CUDA's driver; the patches that follow answer some."""
    names = (name for name, value in vars(_C).items() if name.startswith(_PREFIXES) and callable(value))
    refusals = {name: _missing_function(name) for name in names}
    refusals["_graph_pool_handle"] = _refusing("torch.cuda.graph_pool_handle", _no_pool, _GRAPHS)
    return group(_C, "it asks for CUDA's driver", **refusals)


def _no_pool() -> None:
    """Stand for `torch._C._graph_pool_handle`, which only a build for CUDA has."""


@cuda_runtime("__getattr__")
def _missing_function(name: str) -> Any:
    """Refuse a function that only a build for CUDA has, when it is called."""
    if not name.startswith(_PREFIXES):
        raise AttributeError(f"module 'torch._C' has no attribute {name!r}")

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise UnsupportedOpError(
            f"torch._C.{name}: a virtual GPU has no CUDA runtime to ask; run this on a real one"
        )

    return refuse

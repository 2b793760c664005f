"""A build of PyTorch for CUDA: its versions, settings of its libraries, and the names that need a real GPU.

The versions are those of PyTorch 2.9's wheels for Linux. No kernel here uses cuBLAS or cuDNN, so their
settings are kept and change nothing. Every function of `torch._C` that asks CUDA and has no answer in these
files, and every class in `_CLASSES`, raises an error that names it.
"""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
import torch.backends.cuda
import torch.backends.cudnn

from dpdemo.virtual.applying import Patch, always, group, of_session, replace
from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.patches.cuda_devices import cuda_runtime
from dpdemo.virtual.patches.cuda_memory import memory_info
from dpdemo.virtual.state import Session, the_session

_C: Any = torch._C
_WHY = "only a build for CUDA has it"

# Functions of torch._C that always return the same value; None where nothing needs to be done.
_ANSWERS = {
    "_cuda_getArchFlags": "sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120",
    "_cuda_getAllocatorBackend": "native",
    "_cuda_getCompiledVersion": 12080,
    "_nccl_version": 2 << 32 | 27 << 16 | 5,
    "_nccl_version_suffix": b"",
    "_is_flash_attention_available": True,
    "_can_use_flash_attention": False,  # attention is the CPU's; only bytes are those of CUDA's kernels
    "_can_use_mem_efficient_attention": False,
    "_cuda_get_sync_debug_mode": 0,
    "_cuda_isCurrentStreamCapturing": False,
    **dict.fromkeys(
        (
            *("_cuda_synchronize", "_accelerator_synchronizeDevice", "_cuda_emptyCache", "_cuda_ipc_collect"),
            *("_accelerator_emptyCache", "_accelerator_emptyHostCache", "_host_emptyCache", "_cuda_sleep"),
            "_cuda_clearCublasWorkspaces",
        )
    ),
}
_LIBRARIES = ("linalg", "blas")  # whose preferred backend can be set


def _setting(name: str, default: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the functions that read and write a setting of the block."""

    def write(value: Any, *_: Any) -> None:
        the_session().settings[name] = value

    return lambda *_: the_session().settings.get(name, default), write


for _name, _value in _ANSWERS.items():
    replace(_C, _WHY, **{_name: always(_value)})
for _name in _LIBRARIES:
    _read, _write = _setting(_name, getattr(_C, f"_get_{_name}_preferred_backend")())
    _backend = f"{_name}_preferred_backend"
    replace(_C, _WHY, **{f"_get_{_backend}": _read, f"_set_{_backend}": _write})


class _PlanCache(SimpleNamespace):
    """`torch.backends.cuda.cufft_plan_cache`, one for all GPUs: no kernel here uses cuFFT."""

    def __getitem__(self, device: Any) -> "_PlanCache":
        return self


@of_session
def _plan_caches(_: Session) -> list[Patch]:
    cache = _PlanCache(size=0, max_size=4096, clear=always(None))
    return group(torch.backends.cuda, "C++ would ask CUDA", cufft_plan_cache=cache)


_limit = _setting("benchmark_limit", 10)
replace(_C, _WHY, _cuda_get_cudnn_benchmark_limit=_limit[0], _cuda_set_cudnn_benchmark_limit=_limit[1])
replace(
    type(torch.backends.cudnn), _WHY, benchmark_limit=property(_limit[0], lambda _, limit: _limit[1](limit))
)
replace(
    torch.backends.cudnn,
    "it warns on CPU builds, which have no cuDNN",
    version=always(91002),
    is_acceptable=always(False),
)


if not torch.version.cuda:  # a build for the CPU
    replace(torch.version, _WHY, cuda="12.8")


class _CudaRuntime:
    """`torch.cuda.cudart()`: the functions of the CUDA runtime that PyTorch hands out.

    Neither a profiler that starts nor memory that is pinned makes a difference here.
    """

    cudaError = SimpleNamespace(success=0)  # noqa: N815
    cudaMemGetInfo = staticmethod(memory_info)  # noqa: N815
    cudaProfilerStart = cudaProfilerStop = staticmethod(always(0))  # noqa: N815
    cudaHostRegister = cudaHostUnregister = staticmethod(always(0))  # noqa: N815

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedOpError(f"torch.cuda.cudart().{name}: a virtual GPU has no CUDA runtime")


_runtime = _CudaRuntime()
replace(_C, _WHY, _has_cuda=True, _has_cudnn=True, _has_magma=True, _cudart=_runtime)
replace(torch.cuda, _WHY, _cudart=_runtime, has_magma=True)
for _owner in (torch.cuda, torch.cuda.graphs):
    replace(_owner, "there are no CUDA graphs", is_current_stream_capturing=always(False))
_MARKS = ("rangePushA", "rangePop", "rangeStartA", "rangeEnd", "markA", "deviceRangeStart", "deviceRangeEnd")
replace(
    torch.cuda.nvtx, "no profiler reads its marks", _nvtx=SimpleNamespace(**dict.fromkeys(_MARKS, always(0)))
)


replace(
    torch.autograd.profiler.emit_nvtx,
    "no profiler reads its marks",
    __enter__=lambda marks: marks,
    __exit__=always(False),
)

# --- refused by name ---

_PREFIXES = (
    *("_cuda_", "_nccl_", "_gds_", "_graph_pool"),
    *("_broadcast_out", "_scatter_out", "_gather_out"),  # `torch.cuda.comm` with `out=`
)
_CLASSES = (
    *((torch.cuda.graphs, "CUDAGraph"), (torch.cuda.streams, "ExternalStream")),
    *((torch.cuda.memory, "MemPool"), (torch.cuda.memory, "CUDAPluggableAllocator")),
    *((torch.cuda, "GreenContext"), (torch.accelerator, "Graph")),
)


def _refusal(name: str, why: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise UnsupportedOpError(f"{name}: a virtual GPU has no {why}; run this on a real one")

    return refuse


for _owner, _name in _CLASSES:
    if (_class := vars(_owner).get(_name)) is not None:  # some are newer than others
        _refuse = _refusal(f"{_owner.__name__}.{_name}", "CUDA runtime to ask")
        _ways_in = [name for name, value in vars(_class).items() if isinstance(value, staticmethod)]
        _maker = "__init__" if _class.__new__ is object.__new__ else "__new__"  # whose removal leaves a trace
        replace(_class, _WHY, **dict.fromkeys((_maker, *_ways_in), staticmethod(_refuse)))
replace(torch.cuda, _WHY, _get_pynvml_handler=_refusal("torch.cuda", "sensors"))
replace(torch.cuda, _WHY, _compile_kernel=_refusal("torch.cuda._compile_kernel", "compiler"))


@functools.cache
def refused_questions() -> list[Patch]:
    """Refuse the functions of `torch._C` that ask CUDA's driver; the patches that follow answer some."""
    names = (name for name, value in vars(_C).items() if name.startswith(_PREFIXES) and callable(value))
    return group(_C, "it asks for CUDA's driver", **{name: _missing_function(name) for name in names})


@cuda_runtime("__getattr__")
def _missing_function(name: str) -> Any:
    """Refuse a function that only a build for CUDA has, when it is called."""
    if not name.startswith(_PREFIXES):
        raise AttributeError(f"module 'torch._C' has no attribute {name!r}")
    return _refusal(f"torch._C.{name}", "CUDA runtime to ask")

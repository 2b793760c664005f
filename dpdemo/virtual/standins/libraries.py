"""Settings of CUDA's libraries, which a program may set and read back, and requests that need nothing done.

No kernel here uses cuBLAS, cuDNN or tunable operators, so the settings change nothing. What would change the
numbers (tunable operators turned on) is refused by name.
"""

from __future__ import annotations

from typing import Any

from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.standins.facts import CUDA_VERSION
from dpdemo.virtual.state import the_session

_CUBLAS_WORKSPACE = 4096 * 8 * 1024  # bytes, as on cards of compute capability 9 (CUDABlas.cpp)
# In torch._C: the function that reads a setting, the one that writes it, and what it is at first.
SETTINGS: tuple[tuple[str, str, Any], ...] = (
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
RESET = {
    "_cuda_resetCublasWorkspaceSize": "_cuda_getCublasWorkspaceSize",
    "_cuda_resetCublasLtWorkspaceSize": "_cuda_getCublasLtWorkspaceSize",
}
# There is nothing to be freed, cleared or waited for.
NOTHING_TO_DO = (
    *("_cuda_clearCublasWorkspaces", "_cudnn_clear_dropout_state", "_host_emptyCache"),
    *("_cuda_lock_mutex", "_cuda_unlock_mutex"),
    *("_cuda_resetAccumulatedHostMemoryStats", "_cuda_resetPeakHostMemoryStats", "_cuda_sleep"),
    "_cuda_tunableop_set_numerical_check_tolerances",
)


def stand_ins() -> dict[str, Any]:
    """Return the functions of `torch._C` that are answered here, by name."""
    found: dict[str, Any] = dict.fromkeys(NOTHING_TO_DO, do_nothing)
    for read, write, default in SETTINGS:
        found[read], found[write] = _setting(read, default)
    for name, read in RESET.items():
        found[name] = _reset(read)
    return found | {
        "_cuda_getCompiledVersion": compiled_version,
        "_cuda_hasPrimaryContext": has_context,
        "_cuda_hostMemoryStats": host_memory_stats,
        "_cuda_isHistoryEnabled": is_history_kept,
        "_cuda_attach_out_of_memory_observer": attach_observer,
        "_cuda_isCurrentStreamCapturing": tunes_nothing,
        "_cuda_memoryMetadataSupported": tunes_nothing,
        "_cuda_tunableop_enable": enable_tuned_operators,
        "_cuda_tunableop_is_enabled": tunes_nothing,
        "_cuda_tunableop_get_results": no_results,
        "_cuda_tunableop_get_validators": no_results,
    }


def do_nothing(*_: Any, **__: Any) -> None:
    """Return at once: nothing needs to be done."""


def _setting(name: str, default: Any) -> tuple[Any, Any]:
    def read() -> Any:
        return the_session().settings.get(name, default)

    def write(value: Any, *_: Any) -> None:
        the_session().settings[name] = value

    return read, write


def _reset(name: str) -> Any:
    def reset() -> None:
        the_session().settings.pop(name, None)

    return reset


def compiled_version() -> int:
    """Return the version of CUDA that PyTorch was built with, as its header has it: 12080 for 12.8."""
    major, minor = CUDA_VERSION.split(".")
    return int(major) * 1000 + int(minor) * 10


def has_context(index: int) -> bool:
    """Return whether this process uses GPU `index`: PyTorch lists the processes of a machine so."""
    session = the_session()
    return index == session.current.index or session.ledger.peak[session.check_ordinal(index)] > 0


def host_memory_stats() -> dict[str, Any]:
    """Return the statistics of pinned memory: no block is, pinned tensors are ordinary ones here."""
    none = dict.fromkeys(("current", "peak", "allocated", "freed"), 0)
    times = dict.fromkeys(("total", "max", "min", "count", "avg"), 0)
    kinds = ("allocations", "allocated_bytes", "active_requests", "active_bytes")
    return {
        **{kind: dict(none) for kind in kinds},
        "num_host_alloc": 0,
        "num_host_free": 0,
        "host_alloc_time": dict(times),
        "host_free_time": dict(times),
    }


def is_history_kept() -> bool:
    """Return whether `_record_memory_history` was asked to record."""
    accounts = the_session().ledger.accounts
    recorder = None if accounts is None else accounts.recorder
    return recorder is not None and recorder.is_programs


def attach_observer(observer: Any) -> None:
    """Call `observer` with (GPU, bytes asked for, bytes in all, bytes free) before an out-of-memory error."""
    the_session().ledger.observers.append(observer)


def tunes_nothing() -> bool:
    """Return whether operators are tuned, recorded in graphs, or blocks of memory annotated: no."""
    return False


def no_results() -> tuple[()]:
    """Return what tuning found: nothing."""
    return ()


def enable_tuned_operators(enabled: bool = True) -> None:
    """Take over `torch.cuda.tunable.enable`.

    Raises:
        UnsupportedOpError: it is to be turned on.

    """
    if enabled:
        raise UnsupportedOpError(
            "torch.cuda.tunable.enable: expected False, since a virtual GPU has no kernels to choose from; "
            "run this on a real one"
        )

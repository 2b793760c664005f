"""The CUDA runtime: the functions in C++ behind `torch.cuda` and `torch.accelerator`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
import torch.backends.cudnn

from dpdemo.virtual.patches.applying import Patch, group
from dpdemo.virtual.standins import refusals, runtime, statistics, streams, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpdemo.virtual.state import Session

_C: Any = torch._C


def unanswered() -> list[Patch]:
    """Refuse every question to CUDA's driver; the patches that come later answer some of them."""
    return group(_C, "they ask for CUDA's driver; those with an answer follow", **refusals.unanswered())


def bound_names(patches: Sequence[Patch]) -> list[Patch]:
    """Replace functions of `torch._C` also where a module of `torch.cuda` took them over at its import."""
    replaced = {
        id(vars(_C)[patch.name]): patch.value
        for patch in patches
        if patch.owner is _C and patch.name in vars(_C)
    }
    modules = [
        module for name, module in sys.modules.items() if name.startswith(("torch.cuda", "torch.accel"))
    ]
    return [
        Patch(module, name, replaced[id(value)], "it was taken over from torch._C when this was imported")
        for module in modules
        for name, value in vars(module).items()
        if id(value) in replaced
    ]


def cuda(session: Session) -> list[Patch]:
    """Answer what `torch.cuda` asks for: devices, memory, streams and events."""
    return [
        *group(
            _C,
            "the CUDA runtime's functions behind torch.cuda",
            _cuda_init=visible.initialise,
            _cuda_getDeviceCount=visible.device_count,
            _cuda_getDevice=runtime.get_device,
            _cuda_setDevice=runtime.set_device,
            _cuda_exchangeDevice=runtime.exchange_device,
            _cuda_maybeExchangeDevice=runtime.exchange_device,
            _cuda_synchronize=runtime.synchronize,
            _cuda_canDeviceAccessPeer=runtime.can_access_peer,
            _cuda_memoryStats=statistics.memory_stats,
            _cuda_resetPeakMemoryStats=statistics.reset_peak_stats,
            _cuda_resetAccumulatedMemoryStats=statistics.reset_accumulated_stats,
            _cuda_emptyCache=runtime.empty_cache,
            _cuda_ipc_collect=runtime.empty_cache,
            _cuda_getCurrentStream=runtime.get_current_stream,
            _cuda_getCurrentRawStream=runtime.get_raw_stream,
            _cuda_getDefaultStream=runtime.get_default_stream,
            _cuda_setStream=runtime.set_stream,
            _cuda_isInBadFork=runtime.is_in_bad_fork,
        ),
        *_bound_at_import(session),
        *[
            patch
            for owner in (torch.cuda, torch.cuda.graphs)
            for patch in group(
                owner, "there are no CUDA graphs", is_current_stream_capturing=runtime.not_capturing
            )
        ],
        *group(torch.cuda.nvtx, "markers for a profiler that is not there", _nvtx=runtime.markers()),
        *group(
            torch.backends.cudnn,
            "it warns on CPU builds, and there is no cuDNN",
            is_acceptable=runtime.no_cudnn,
        ),
    ]


def _bound_at_import(session: Session) -> list[Patch]:
    own_classes = {"Stream": streams.VirtualStream, "Event": streams.VirtualEvent}
    return [
        *group(
            torch.cuda,
            "bound when torch.cuda was imported, or set by CUDA's own initialisation",
            _exchange_device=runtime.exchange_device,
            _maybe_exchange_device=runtime.exchange_device,
            _get_device_properties=runtime.properties,
            _is_in_bad_fork=runtime.is_in_bad_fork,
            _initialized=session.is_initialised,
            _cached_device_count=None,
            _queued_calls=[],  # what was asked for before the block is about real GPUs
            _lazy_seed_tracker=type(torch.cuda._lazy_seed_tracker)(),
            _raw_device_count_nvml=visible.raw_count,
            _raw_device_uuid_nvml=visible.raw_uuids,
            default_generators=tuple(session.generators) if session.is_initialised else (),
            mem_get_info=runtime.mem_get_info,
        ),
        *group(torch.cuda.memory, "asks the CUDA runtime itself", mem_get_info=runtime.mem_get_info),
        *[
            patch
            for owner in (torch, torch.cuda, torch.cuda.streams)
            for patch in group(owner, "streams that C++ defines", **own_classes)
        ],
    ]


def accelerator() -> list[Patch]:
    """Answer what `torch.accelerator` asks for."""
    return group(
        _C,
        "the functions behind torch.accelerator",
        _accelerator_getAccelerator=runtime.accelerator,
        _accelerator_getDeviceIndex=runtime.get_device,
        _accelerator_setDeviceIndex=runtime.set_device,
        _accelerator_exchangeDevice=runtime.exchange_device,
        _accelerator_maybeExchangeDevice=runtime.exchange_device,
        _accelerator_getStream=runtime.accelerator_stream,
        _accelerator_setStream=streams.set_stream,
        _accelerator_synchronizeDevice=runtime.synchronize,
        _accelerator_getDeviceCapability=runtime.accelerator_capability,
        _accelerator_isAllocatorInitialized=runtime.no_device_flag,
        _accelerator_emptyCache=runtime.empty_cache,
        _accelerator_emptyHostCache=runtime.empty_cache,
        _accelerator_getDeviceStats=statistics.memory_stats,
        _accelerator_getMemoryInfo=runtime.memory_info,
        _accelerator_resetPeakStats=statistics.reset_peak_stats,
        _accelerator_resetAccumulatedStats=statistics.reset_accumulated_stats,
    )

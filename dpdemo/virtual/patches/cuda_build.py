"""A build for CUDA: what a build for the CPU lacks is added, and what only a real GPU has is refused."""

from __future__ import annotations

from typing import Any

import torch
import torch.backends.cuda
import torch.backends.cudnn
import torch.cuda.sparse

from dpdemo.virtual.ops import attention
from dpdemo.virtual.patches.applying import Patch, group
from dpdemo.virtual.standins import facts, legacy, libraries, refusals, runtime, snapshots
from dpdemo.virtual.standins.properties import DeviceProperties

_C: Any = torch._C
_WHY = "only a build for CUDA has it"


def cuda_build() -> list[Patch]:
    """Let a build for the CPU know what one for CUDA knows; the latter keeps its own version."""
    return [
        *_facts(),
        *_settings(),
        *_memory_snapshots(),
        *_nccl_versions(),
        *([] if torch.version.cuda else group(torch.version, _WHY, cuda=facts.CUDA_VERSION)),
        *[Patch(owner, name, value, "only a real GPU has it") for owner, name, value in refusals.refusals()],
    ]


def _facts() -> list[Patch]:
    runtime_library = facts.CudaRuntime()
    return [
        *group(
            _C,
            _WHY,
            _has_cuda=True,
            _has_cudnn=True,
            _cudart=runtime_library,
            _has_magma=True,
            _CudaDeviceProperties=DeviceProperties,
            _is_flash_attention_available=facts.has_flash_attention,
            _can_use_flash_attention=attention.can_use_flash,
            _can_use_mem_efficient_attention=attention.can_use_efficient,
            _cuda_getArchFlags=facts.arch_flags,
            _cuda_getAllocatorBackend=facts.allocator_backend,
            _get_accelerator=runtime.accelerator,
            __getattr__=refusals.missing_function,
        ),
        *group(
            torch.cuda,
            _WHY,
            _cudart=runtime_library,
            has_magma=True,
            device_memory_used=facts.device_memory_used,
        ),
        *group(torch.backends.cudnn, _WHY, version=facts.cudnn_version),
        *group(type(torch.backends.cudnn), _WHY, benchmark_limit=facts.BENCHMARK_LIMIT),
    ]


def _settings() -> list[Patch]:
    linalg = facts.preferred("linalg", _C._get_linalg_preferred_backend)
    blas = facts.preferred("blas", _C._get_blas_preferred_backend)
    return [
        *group(
            _C,
            _WHY,
            _cuda_getMemoryFraction=facts.get_memory_fraction,
            _cuda_setMemoryFraction=facts.set_memory_fraction,
            _cuda_get_sync_debug_mode=facts.get_sync_mode,
            _cuda_set_sync_debug_mode=facts.set_sync_mode,
            _cuda_get_cudnn_benchmark_limit=facts.get_benchmark_limit,
            _cuda_set_cudnn_benchmark_limit=facts.set_benchmark_limit,
            _cuda_cudaCachingAllocator_enable=facts.set_caching,
            _cuda_cudaCachingAllocator_is_enabled=facts.get_caching,
            _get_linalg_preferred_backend=linalg[0],
            _set_linalg_preferred_backend=linalg[1],
            _get_blas_preferred_backend=blas[0],
            _set_blas_preferred_backend=blas[1],
        ),
        *group(_C, "CUDA's libraries are not there", **libraries.stand_ins()),
        *group(
            torch.backends.cuda.cuFFTPlanCache,
            _WHY,
            size=property(facts.num_plans),
            max_size=property(facts.get_plan_cache_limit, facts.set_plan_cache_limit),
            clear=facts.clear_plans,
        ),
    ]


def _memory_snapshots() -> list[Patch]:
    return group(
        _C,
        _WHY,
        _cuda_memorySnapshot=snapshots.memory_snapshot,
        _cuda_record_memory_history=snapshots.record_history,
        _cuda_cudaCachingAllocator_raw_alloc=snapshots.allocate_raw,
        _cuda_cudaCachingAllocator_raw_delete=snapshots.free_raw,
    )


def _nccl_versions() -> list[Patch]:
    return group(
        _C,
        _WHY,
        _nccl_version=facts.nccl_version,
        _nccl_version_suffix=facts.nccl_version_suffix,
    )


def tensor_types() -> list[Patch]:
    """Let the old names of types, such as `torch.cuda.FloatTensor`, tell tensors on a GPU from others."""
    return [
        *group(torch, "sets the default device too", set_default_tensor_type=legacy.set_default_tensor_type),
        *group(torch.cuda, "old names, not available in CPU builds", **legacy.tensor_types()),
        *group(torch.cuda.sparse, "old names, not available in CPU builds", **legacy.sparse_types()),
        *group(torch, "old names, which C++ takes tensors on a GPU for", **legacy.host_types()),
    ]

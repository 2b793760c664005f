"""Everything that is replaced in PyTorch while a block is open: what, where and why, as data.

The next PyTorch release is an edit of this table. An attribute that a build does not have (a CPU build has no
`torch._C._scatter`) is added, and taken away again. `applied` puts every attribute back by identity, whatever
happens.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.backends.cuda
import torch.backends.cudnn
import torch.cuda.nccl
import torch.cuda.sparse
import torch.nn.parallel
import torch.utils._device
import torch.utils.dlpack
from torch._library import simple_registry
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.function import BackwardCFunction

from dpdemo.virtual import kinds
from dpdemo.virtual.ops import attention, ctc, cuda_only, dispatch, dropout, norms, numberless, recurrent
from dpdemo.virtual.standins import (
    autograd,
    comm,
    compiling,
    composites,
    devices,
    factories,
    facts,
    flattening,
    flex,
    generators,
    grouping,
    legacy,
    libraries,
    nccl,
    profiling,
    refusals,
    replicas,
    runtime,
    scripting,
    snapshots,
    storages,
    streams,
    tensor,
    threads,
    wrappers,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dpdemo.virtual.ops.casting import Autocast
    from dpdemo.virtual.state import Session

_C: Any = torch._C
_ABSENT = object()


class _Attribute(property):
    """A property that torch._dynamo, if it is imported inside a block, can ask what C++ attributes answer."""

    __objclass__ = torch._C.TensorBase

    @property
    def __name__(self) -> str:
        return str(getattr(self.fget, "__name__", "")).removeprefix("get_")


@dataclass(frozen=True)
class Patch:
    """One attribute of `owner`, or entry if that is a dict, that is another one while a block is open."""

    owner: Any
    name: Any
    value: Any
    why: str


def _group(owner: Any, why: str, **values: Any) -> list[Patch]:
    return [Patch(owner, name, value, why) for name, value in values.items()]


def _existing(owner: Any, why: str, **values: Any) -> list[Patch]:
    """Patch what this release has of these attributes."""
    return [patch for patch in _group(owner, why, **values) if hasattr(owner, patch.name)]


def _seam_patches() -> list[Patch]:
    return [
        *_group(
            _C,
            "DataParallel's seam: absent in CPU builds, and real devices in CUDA builds",
            _broadcast=comm.broadcast,
            _broadcast_out=comm.broadcast_out,
            _broadcast_coalesced=comm.broadcast_coalesced,
            _scatter=comm.scatter,
            _scatter_out=comm.scatter_out,
            _gather=comm.gather,
            _gather_out=comm.gather_out,
            _nccl_reduce=comm.nccl_reduce,
        ),
        *_group(
            _C._nn,
            "they make two operators of each tensor",
            flatten_dense_tensors=flattening.flatten,
            unflatten_dense_tensors=flattening.unflatten,
        ),
        *_group(torch.cuda.nccl, "NCCL adds gradients up for DataParallel", is_available=comm.can_reduce),
    ]


def _cuda_patches(session: Session) -> list[Patch]:
    return [
        *_group(
            _C,
            "the CUDA runtime's functions behind torch.cuda",
            _cuda_getDeviceCount=runtime.device_count,
            _cuda_getDevice=runtime.get_device,
            _cuda_setDevice=runtime.set_device,
            _cuda_exchangeDevice=runtime.exchange_device,
            _cuda_maybeExchangeDevice=runtime.exchange_device,
            _cuda_synchronize=runtime.synchronize,
            _cuda_canDeviceAccessPeer=runtime.can_access_peer,
            _cuda_memoryStats=runtime.memory_stats,
            _cuda_resetPeakMemoryStats=runtime.reset_peak_stats,
            _cuda_resetAccumulatedMemoryStats=runtime.reset_accumulated_stats,
            _cuda_emptyCache=runtime.empty_cache,
            _cuda_ipc_collect=runtime.empty_cache,
            _cuda_getCurrentStream=runtime.get_current_stream,
            _cuda_getCurrentRawStream=runtime.get_raw_stream,
            _cuda_getDefaultStream=runtime.get_default_stream,
            _cuda_setStream=runtime.set_stream,
            _cuda_isInBadFork=runtime.is_in_bad_fork,
        ),
        *_group(
            torch.cuda,
            "bound when torch.cuda was imported, or set by CUDA's own initialisation",
            _exchange_device=runtime.exchange_device,
            _maybe_exchange_device=runtime.exchange_device,
            _get_device_properties=runtime.properties,
            _is_in_bad_fork=runtime.is_in_bad_fork,
            _initialized=True,
            _cached_device_count=session.num_gpus,
            default_generators=tuple(session.generators),
            mem_get_info=runtime.mem_get_info,
            Stream=streams.VirtualStream,
            Event=streams.VirtualEvent,
        ),
        *_group(torch.cuda, "there are no CUDA graphs", is_current_stream_capturing=runtime.not_capturing),
        *_group(
            torch.cuda.graphs, "there are no CUDA graphs", is_current_stream_capturing=runtime.not_capturing
        ),
        *_group(torch.cuda.nvtx, "markers for a profiler that is not there", _nvtx=runtime.markers()),
        *_group(
            torch.backends.cudnn,
            "it warns on CPU builds, and there is no cuDNN",
            is_acceptable=runtime.no_cudnn,
        ),
        *_group(torch.cuda.memory, "asks the CUDA runtime itself", mem_get_info=runtime.mem_get_info),
        *_group(torch.cuda.streams, "C++ streams", Stream=streams.VirtualStream, Event=streams.VirtualEvent),
        *_group(torch, "C++ streams", Stream=streams.VirtualStream, Event=streams.VirtualEvent),
    ]


def _fact_patches() -> list[Patch]:
    """Let a build for the CPU know what one for CUDA knows; the latter keeps what it has."""
    why = "only a build for CUDA has it"
    linalg = facts.preferred("linalg", _C._get_linalg_preferred_backend)
    blas = facts.preferred("blas", _C._get_blas_preferred_backend)
    runtime_library = facts.CudaRuntime()
    return [
        *_group(
            _C,
            why,
            _has_cuda=True,
            _has_cudnn=True,
            _cudart=runtime_library,
            _cuda_getArchFlags=facts.arch_flags,
            _cuda_getAllocatorBackend=facts.allocator_backend,
            _cuda_getMemoryFraction=facts.get_memory_fraction,
            _cuda_setMemoryFraction=facts.set_memory_fraction,
            _cuda_memorySnapshot=snapshots.memory_snapshot,
            _cuda_record_memory_history=snapshots.record_history,
            _cuda_cudaCachingAllocator_raw_alloc=snapshots.allocate_raw,
            _cuda_cudaCachingAllocator_raw_delete=snapshots.free_raw,
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
            _nccl_all_reduce=nccl.all_reduce,
            _nccl_broadcast=nccl.broadcast,
            _nccl_all_gather=nccl.all_gather,
            _nccl_reduce_scatter=nccl.reduce_scatter,
            _nccl_version=facts.nccl_version,
            _nccl_version_suffix=facts.nccl_version_suffix,
            _get_accelerator=runtime.accelerator,
            __getattr__=refusals.missing_function,
        ),
        *_group(_C, "there is no library of CUDA's", **libraries.stand_ins()),
        *_group(torch.cuda, why, _cudart=runtime_library, device_memory_used=facts.device_memory_used),
        *_group(torch.backends.cudnn, why, version=facts.cudnn_version),
        *_group(
            torch.backends.cuda.cuFFTPlanCache,
            why,
            size=property(facts.num_plans),
            max_size=property(facts.get_plan_cache_limit, facts.set_plan_cache_limit),
            clear=facts.clear_plans,
        ),
        *_group(torch, "sets the default device too", set_default_tensor_type=legacy.set_default_tensor_type),
        *([] if torch.version.cuda else _group(torch.version, why, cuda=facts.CUDA_VERSION)),
        *[Patch(owner, name, value, "only a real GPU has it") for owner, name, value in refusals.refusals()],
    ]


def _accelerator_patches() -> list[Patch]:
    return _group(
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
        _accelerator_getDeviceStats=runtime.memory_stats,
        _accelerator_getMemoryInfo=runtime.memory_info,
        _accelerator_resetPeakStats=runtime.reset_peak_stats,
        _accelerator_resetAccumulatedStats=runtime.reset_accumulated_stats,
    )


def _tensor_patches() -> list[Patch]:
    no_dlpack = tensor.no_dlpack("to_dlpack", torch.utils.dlpack.to_dlpack)  # type: ignore[attr-defined]
    methods = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros")
    return [
        *_group(
            torch.Tensor,
            "what names a device: to C++ every tensor is on the CPU",
            device=_Attribute(tensor.device),
            is_cuda=_Attribute(tensor.is_cuda),
            is_cpu=_Attribute(tensor.is_cpu),
            get_device=tensor.get_device,
            to=tensor.to,
            cuda=tensor.cuda,
            cpu=tensor.cpu,
            numpy=tensor.numpy,
            type=tensor.type_,
            type_as=tensor.type_as,
            copy_=tensor.copy_,
            __setitem__=tensor.setitem,
            __dlpack__=tensor.no_dlpack("Tensor.__dlpack__", torch.Tensor.__dlpack__),
            new_tensor=tensor.new_tensor,
            new=tensor.new,
        ),
        *[
            Patch(owner, "to_dlpack", no_dlpack, "it would say that the memory is the CPU's")
            for owner in (torch, torch.utils.dlpack)
        ],
        *_group(
            torch.Tensor,
            "C++ would ask for a CUDA runtime",
            _make_wrapper_subclass=staticmethod(wrappers.make_wrapper_subclass),
        ),
        *_group(_C._nn, "a bare number as device, and the device of a tensor", _parse_to=tensor.parse_to),
        *_group(
            torch.Tensor,
            "needs a CUDA runtime",
            pin_memory=tensor.pin_memory,
            is_pinned=tensor.is_pinned,
            record_stream=tensor.record_stream,
        ),
        *_group(
            torch.Tensor,
            "C++ refuses a bare number as device in a CPU build",
            **{name: factories.plain(getattr(torch._C.TensorBase, name)) for name in methods},
        ),
    ]


def _factory_patches() -> list[Patch]:
    context = torch.utils._device.DeviceContext
    # It keeps what it finds at its first call: that must be PyTorch's own.
    torch.utils._device._device_constructors()
    names = (*factories.PLAIN, *factories.COPYING, "as_tensor")
    replaced = {getattr(torch, name): name for name in names}
    plain, copying = "a bare number as device", "they copy data in with dispatch turned off"
    return [
        *_group(torch, plain, **{name: factories.plain(getattr(torch, name)) for name in factories.PLAIN}),
        *_group(
            torch, copying, **{name: factories.copying(getattr(torch, name)) for name in factories.COPYING}
        ),
        *_group(torch, copying, as_tensor=factories.as_tensor(torch.as_tensor)),
        *_group(
            torch.fft, plain, **{name: factories.plain(getattr(torch.fft, name)) for name in factories.FFT}
        ),
        *_group(torch.nested, copying, nested_tensor=factories.copying(torch.nested.nested_tensor)),
        *_group(
            torch.fft,
            "C++ knows half precision on CUDA only",
            **{name: cuda_only.half_fft(getattr(torch.fft, name)) for name in cuda_only.TRANSFORMS},
        ),
        *_group(
            context,
            "it calls the functions above by themselves",
            __torch_function__=factories.device_context(context.__torch_function__, replaced),
        ),
    ]


def _composite_patches() -> list[Patch]:
    why = "C++ would compare its own devices, which are all the CPU"
    return [Patch(owner, name, call, why) for owner, name, call in composites.stand_ins()]


def _script_patches(others: list[Patch]) -> list[Patch]:
    """TorchScript knows PyTorch's functions by identity; it must know their stand-ins too."""
    known = torch.jit._builtins._get_builtin_table()  # type: ignore[no-untyped-call]
    saving: Any = torch.jit.RecursiveScriptModule, torch.jit.ScriptFunction  # type: ignore[attr-defined]
    ops = [(patch, known.get(id(getattr(patch.owner, patch.name)))) for patch in others]
    why = "TorchScript knows functions by identity"
    asks = "its interpreter asks C++ where a tensor is"
    return [
        *[Patch(known, id(patch.value), op, why) for patch, op in ops if op is not None],
        Patch(_C, "_jit_script_compile", scripting.compiling(_C._jit_script_compile), asks),
        Patch(
            torch.jit._recursive,
            "create_script_module_impl",
            scripting.creating(torch.jit._recursive.create_script_module_impl),
            asks,
        ),
        *[
            Patch(owner, name, scripting.saving(getattr(owner, name)), "any PyTorch must load the file")
            for owner in saving
            for name in ("save", "save_to_buffer")
        ],
    ]


def _thread_patches() -> list[Patch]:
    return [
        Patch(threading.Thread, "_bootstrap_inner", threads.bootstrap, "dispatch modes are thread-local"),
        Patch(
            sys.modules["torch.nn.parallel.parallel_apply"],
            "threading",
            replicas.ParallelApplyThreading,
            "replicas take turns in device order",
        ),
        Patch(
            sys.modules["torch.nn.parallel._functions"],
            "_streams",
            None,
            "a cache of one stream for each device that there was",
        ),
    ]


def _kernel_patches() -> list[Patch]:
    made = {name: recurrent.fused(name, getattr(torch._VF, name)) for name in recurrent.NAMES}
    fused = "one kernel on CUDA, which keeps less than the CPU's operators"
    attend = {"scaled_dot_product_attention": attention.attention}
    return [
        *_group(torch._VF, f"{fused}; and a check of devices that stands in C++", **made),
        *_group(torch.nn.functional, fused, **attend),
        *_group(_C._nn, fused, **attend),
        *_group(torch._VF, "its mask is smaller on CUDA", dropout=dropout.dropout),
        *_group(torch, "its mask is smaller on CUDA", dropout=dropout.dropout),
        *_group(torch, "it divides by lengths that may be on the CPU", ctc_loss=ctc.ctc_loss),
        *_group(torch, fused, rms_norm=norms.rms_norm),
    ]


def _profiler_patches() -> list[Patch]:
    return _group(
        torch.autograd.profiler,
        "without CUDA's activity it falls back on events of C++, which complain about each operator",
        _supported_activities=profiling.supported_activities,
    )


def _dispatch_patches() -> list[Patch]:
    return _group(
        simple_registry,
        "C++ asks with every operator whether it has a rule for our mode; it has none",
        find_torch_dispatch_rule=dispatch.find_rule,
    )


def _fake_patches() -> list[Patch]:
    return _group(
        FakeTensorMode,
        "it would compute what it knows on the GPU itself, which C++ does not have",
        avoid_device_init=property(wrappers.avoid_device_init),
    )


def _device_patches() -> list[Patch]:
    if devices.understands_numbers():
        return []
    return [Patch(torch, "device", devices.DeviceName, "C++ refuses a bare number as device in a CPU build")]


def _autograd_patches(autocast: Autocast) -> list[Patch]:
    return [
        *_group(
            torch.autograd.Function,
            "C++ makes gradients of zeros on the CPU; this notes where the outputs are",
            apply=classmethod(autograd.apply),
        ),
        *_group(
            torch.Tensor,
            "the same for gradients that C++ makes of nothing",
            grad=_Attribute(autograd.get_grad, autograd.set_grad, autograd.del_grad),
        ),
        *_group(torch.autograd, "and for those of autograd.grad", _engine_run_backward=autograd.run_engine),
        *_group(BackwardCFunction, "and this labels them accordingly", apply=autograd.backward),
        *_existing(BackwardCFunction, "since 2.15", apply_boxed=autograd.backward_boxed),
        *_group(
            _C,
            "C++ would put tensors of all GPUs into one group",
            _group_tensors_by_device_and_dtype=grouping.group_by_device_and_dtype,
        ),
        *_group(
            torch,
            "C++ would cast by its own devices",
            set_autocast_enabled=autocast.set_enabled,
            clear_autocast_cache=autocast.clear_cache,
            Generator=generators.GeneratorName,
        ),
        *_group(
            flex.MODULE,
            "it would trace on a GPU, for which C++ has no threads",
            create_fw_bw_graph=flex.create_graphs,
        ),
        *_group(torch, "its tracing does not see through a dispatch mode", compile=compiling.compile),
        *_group(torch.cuda, "old names, not available in CPU builds", **legacy.tensor_types()),
        *_group(torch.cuda.sparse, "old names, not available in CPU builds", **legacy.sparse_types()),
        *_group(torch, "old names, which C++ takes tensors on a GPU for", **legacy.host_types()),
    ]


def _module_patches() -> list[Patch]:
    return _group(
        torch.nn.Module,
        "the ledger tells parameters and buffers from other tensors",
        _apply=kinds.apply_to_module,
        register_parameter=kinds.register_parameter,
        register_buffer=kinds.register_buffer,
    )


def _numberless_patches(session: Session) -> list[Patch]:
    if not session.is_meta:
        return []
    why = "there are no numbers to read"
    reading = {
        name: numberless.refusing(
            name, getattr(torch._C.TensorBase, name, None) or getattr(torch.Tensor, name)
        )
        for name in numberless.READING
    }
    return [
        *_group(torch.Tensor, why, **reading, __format__=numberless.format_),
        *_group(
            torch.nn.Parameter,
            "a parameter has no numbers on the host either",
            __new__=numberless.new_parameter,
        ),
    ]


def _storage_patches() -> list[Patch]:
    return _group(
        torch.UntypedStorage,
        "what names a device: to C++ every storage is on the CPU",
        device=_Attribute(storages.device),
        to=storages.to,
        cuda=storages.cuda,
        cpu=storages.cpu,
        clone=storages.clone,
        copy_=storages.copy_,
        __new__=storages.new,
        _share_cuda_=storages.share,
    )


def table(session: Session, autocast: Autocast) -> list[Patch]:
    """Return all patches for `session`, whose threads cast as `autocast` says."""
    factories_and_more = [*_factory_patches(), *_kernel_patches(), *_composite_patches()]
    return [
        *_group(_C, "they ask for CUDA's driver; those with an answer follow", **refusals.unanswered()),
        *_seam_patches(),
        *_cuda_patches(session),
        *_fact_patches(),
        *_accelerator_patches(),
        *_tensor_patches(),
        *factories_and_more,
        *_script_patches(factories_and_more),
        *_device_patches(),
        *_profiler_patches(),
        *_dispatch_patches(),
        *_fake_patches(),
        *_autograd_patches(autocast),
        *_storage_patches(),
        *_module_patches(),
        *_numberless_patches(session),
        *_thread_patches(),
    ]


@contextlib.contextmanager
def applied(patches: Iterable[Patch]) -> Iterator[None]:
    """Apply `patches`, and put everything back on the way out, last first."""
    with contextlib.ExitStack() as undo:
        for patch in patches:
            before = attributes(patch.owner).get(patch.name, _ABSENT)
            _put(patch.owner, patch.name, patch.value)
            undo.callback(_put, patch.owner, patch.name, before)
        undo.callback(torch.accelerator.get_device_capability.cache_clear)
        yield


def attributes(owner: Any) -> Any:
    """Return what `owner` itself has, by name."""
    return owner if isinstance(owner, dict) else vars(owner)


def _put(owner: Any, name: Any, value: Any) -> None:
    if isinstance(owner, dict):
        owner.pop(name, None) if value is _ABSENT else owner.__setitem__(name, value)
    elif value is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, value)

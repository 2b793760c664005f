"""The backend "nccl" of torch.distributed, over gloo: programs written for NCCL run unmodified.

`ProcessGroupNCCL` keeps its name, its options and its time-out, so that `get_backend()` is "nccl" and
`isinstance` holds; what it does is gloo's. It is registered for "cuda" and also for "cpu", since C++ sees
tensors of the CPU. The collectives themselves pass through `ops/c10d.py`.

It promises no bandwidth, no overlap and not NCCL's order of sums.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from dpdemo.virtual import remote_calls
from dpdemo.virtual.applying import Patch, always, group
from dpdemo.virtual.labels import flat_tensors, label_of, stamp
from dpdemo.virtual.ops.collectives import gpu_of_group
from dpdemo.virtual.process_groups import TIMEOUT, ProcessGroupNCCL, process_group_patches, refuse
from dpdemo.virtual.state import the_session
from dpdemo.virtual.threads import seeing_gpus

if TYPE_CHECKING:
    from collections.abc import Callable

_WHY = "NCCL's name over gloo"
_OF_SYMMETRIC_MEMORY = ("empty_strided_p2p", "rendezvous", "get_mempool_allocator")


def patches() -> list[Patch]:
    """Return what makes torch.distributed offer NCCL; nothing in a build without it."""
    if not dist.is_available() or not dist.is_gloo_available():
        return []
    import torch.distributed.constants as constants  # noqa: PLR0402 - a module of values

    c10d: Any = dist.distributed_c10d
    cpp: Any = torch._C._distributed_c10d
    return [
        *group(c10d, _WHY, _NCCL_AVAILABLE=True, default_pg_nccl_timeout=TIMEOUT),
        *group(constants, _WHY, default_pg_nccl_timeout=TIMEOUT),
        *[Patch(owner, "ProcessGroupNCCL", ProcessGroupNCCL, _WHY) for owner in (c10d, dist, cpp)],
        *[Patch(owner, "is_nccl_available", always(True), _WHY) for owner in (c10d, dist)],
        *_makers(c10d),
        *process_group_patches(),
        *group(
            cpp._SymmetricMemory,
            "it needs the GPUs of other processes",
            **dict.fromkeys(_OF_SYMMETRIC_MEMORY, staticmethod(_no_symmetric_memory)),
        ),
        *group(dist, "C++ sees one device", _broadcast_coalesced=_by_device(cpp._broadcast_coalesced)),
        *group(
            dist,
            "C++ makes tensors on the GPU of the parameters",
            _verify_params_across_processes=_on_their_gpu(cpp._verify_params_across_processes),
        ),
        Patch(cpp, "_hash_tensors", _hash_tensors, "only a build with NCCL has it"),
        *_functions(c10d),
        *remote_calls.patches(),
        *group(cpp.Work, "it needs a CUDA stream", block_current_stream=lambda self: self.wait() and None),
        *[
            Patch(
                torch._C.Future, name, _on_gpus(getattr(torch._C.Future, name)), "it runs on gloo's threads"
            )
            for name in ("then", "add_done_callback")
        ],
        *[
            Patch(cpp.GradBucket, name, _labelled(getattr(cpp.GradBucket, name)), "C++ made the bucket")
            for name in ("buffer", "gradients")
        ],
    ]


def _makers(c10d: Any) -> list[Patch]:
    """Create our backend under each of NCCL's names, which torch 2.15 looks up in a table."""
    others = [
        name
        for name in ("_create_nccl2_process_group", "_create_nccl_lazy_process_group")
        if hasattr(c10d, name)
    ]
    if not others:
        return []
    kept = {name: maker for name, maker in c10d.Backend._plugins.items() if not name.startswith("NCCL")}
    return [
        *[Patch(c10d, name, c10d._create_nccl_process_group, _WHY) for name in others],
        Patch(c10d.Backend, "_plugins", kept, _WHY),
    ]


def _hash_tensors(tensors: list[torch.Tensor]) -> int:
    """Return a number for debug logs of objects that are sent."""
    return hash(str([tensor.tolist() for tensor in tensors]))


def _no_symmetric_memory(*_: Any, **__: Any) -> Any:
    return refuse("symmetric memory")


def _by_device(original: Callable[..., Any]) -> Callable[..., Any]:
    """Broadcast the parameters of each GPU by themselves: C++ flattens those that it sees on one device."""

    @functools.wraps(original)
    def broadcast(group: Any, tensors: list[torch.Tensor], size: int, src: int = 0) -> None:
        devices: dict[torch.device, list[torch.Tensor]] = {}
        for tensor in tensors:
            devices.setdefault(tensor.device, []).append(tensor)
        for on_one in devices.values():
            original(group, on_one, size, src)

    return broadcast


def _on_their_gpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """Remember on which GPU a DistributedDataParallel is: the program may never have called set_device."""

    @functools.wraps(original)
    def verify(group: Any, tensors: list[torch.Tensor], *args: Any) -> Any:
        label = label_of(tensors[0], the_session().key) if tensors else None
        if label is not None:
            gpu_of_group[group.group_name] = label.index
        return original(group, tensors, *args)

    return verify


def _labelled(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get(self: Any) -> Any:
        result, session = original(self), the_session()
        for tensor in flat_tensors(result):
            if label_of(tensor, session.key) is None:
                stamp(tensor, session, session.current.index)
        return result

    return get


def _on_gpus(original: Callable[..., Any]) -> Callable[..., Any]:
    """Give the thread that runs a future's callback the GPUs of the one that added it."""

    @functools.wraps(original)
    def add(self: Any, callback: Any) -> Any:
        index = the_session().current.index

        def called(future: Any) -> Any:
            with seeing_gpus(index):
                return callback(future)

        return original(self, called)

    return add


_REDUCED = ("all_reduce", "reduce", "reduce_scatter_tensor", "reduce_scatter_single", "reduce_scatter")


def _functions(c10d: Any) -> list[Patch]:
    made = {name: _multiplying(getattr(c10d, name)) for name in _REDUCED if hasattr(c10d, name)}
    return [
        Patch(owner, name, function, "gloo has no PREMUL_SUM")
        for name, function in made.items()
        for owner in (c10d, dist)
    ]


@functools.cache
def _multiplying(original: Callable[..., Any]) -> Callable[..., Any]:
    """Multiply before the sum where PREMUL_SUM is asked for."""
    import inspect

    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        given = bound.arguments
        operation: Any = given.get("op")
        if getattr(operation, "op", None) != dist.ReduceOp.PREMUL_SUM:
            return original(*args, **kwargs)
        source = next(name for name in ("input", "input_list", "tensor") if name in given)
        scaled = [tensor.mul(operation.factor) for tensor in flat_tensors(given[source])]
        if source == "tensor":
            given["tensor"].copy_(scaled[0])
        else:
            given[source] = scaled if isinstance(given[source], list) else scaled[0]
        given["op"] = dist.ReduceOp.SUM
        return original(*bound.args, **bound.kwargs)

    return call

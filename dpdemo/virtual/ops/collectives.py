"""The operators `c10d.*`: every collective passes here, those of DDP's reducer inside `backward()` too.

NCCL's name stands over gloo (`distributed.py`), and C++ sees tensors of the CPU. So what C++ made itself,
such as the buckets of gradients, gets its label here, and what NCCL takes and gloo does not is adapted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.labels import label_of, stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dpdemo.virtual.state import Session

    Run = Callable[..., Any]

listeners: list[Callable[[str, Any, tuple[Any, ...]], None]] = []
"""Each is called before a collective with its name, its ProcessGroup and its arguments."""
nccl_groups: set[str] = set()
"""Names of the groups whose backend is NCCL alone: all their tensors are on a GPU."""
coalesced: dict[str, list[Any]] = {}
"""By name of the group, the works to wait for once its coalescing manager closes."""

_WITHOUT_ALL = {"barrier", "send", "recv_", "recv_any_source_"}
_connected: set[str] = set()
_BY_NUMBER_OF_ELEMENTS = {"_allgather_base_", "_reduce_scatter_base_"}
_REFUSED = {
    "recv_any_source_": "ProcessGroupNCCL does not support recvAnysource",  # Backend.hpp's and NCCL's words
    "monitored_barrier_": "ProcessGroup nccl does not support monitoredBarrier, only GLOO supports it",
}


def flat_tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested lists."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from flat_tensors(item)


def group_of(args: tuple[Any, ...]) -> Any:
    """Return the ProcessGroup among an operator's arguments, or None."""
    for arg in args:
        if isinstance(arg, torch.ScriptObject) and "ProcessGroup" in str(arg._type()):
            return torch.distributed.ProcessGroup.unbox(arg)
    return None


def action(run: Run) -> Run:
    """Return what a collective takes; `run` runs an ordinary operator."""

    def collective(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = func._schema.name.removeprefix("c10d::")
        group = group_of(args)
        if group is None:
            return run(session, func, args, kwargs)
        tensors = list(flat_tensors(args))
        is_nccl = group.group_name in nccl_groups
        if is_nccl:
            _prepare(session, name, tensors)
        for listener in listeners:
            listener(name, group, args)
        if is_nccl and tensors and name not in _WITHOUT_ALL:
            _check_own_gpu(session, group, tensors)
        result = _adapted(name, func, args, kwargs)
        if group.group_name in coalesced:
            coalesced[group.group_name].append(result[-1] if isinstance(result, (tuple, list)) else result)
        return result

    return collective


def _prepare(session: Session, name: str, tensors: list[torch.Tensor]) -> None:
    """Refuse what NCCL refuses, and put what C++ made on the current GPU."""
    if name in _REFUSED:
        raise RuntimeError(_REFUSED[name])
    if name == "barrier":
        return
    for tensor in tensors:
        _check_dtype(name, tensor)
        if label_of(tensor, session.key) is None:
            stamp(tensor, session, session.current.index)


def _check_own_gpu(session: Session, group: Any, tensors: list[torch.Tensor]) -> None:
    """Refuse two ranks on one GPU at a group's first collective, as NCCL does when it connects them."""
    if group.group_name in _connected or group.size() == 1:
        return
    _connected.add(group.group_name)
    label = label_of(tensors[0], session.key)
    store = torch.distributed.distributed_c10d._world.pg_map[group][1]
    own = "host" if label is None else str(session.visible[label.index])
    store.set(f"gpu of {group.rank()}", own)
    others = (rank for rank in range(group.size()) if rank != group.rank())
    for rank in others:
        if store.get(f"gpu of {rank}").decode() == own:
            raise torch.distributed.DistBackendError(
                "NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)\n"
                f"Duplicate GPU detected : rank {group.rank()} and rank {rank} both on CUDA device {own}; "
                "each rank needs torch.cuda.set_device(LOCAL_RANK) before its first collective"
            )


def _adapted(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a collective, in a shape that gloo takes."""
    if name in _BY_NUMBER_OF_ELEMENTS:
        result = func(args[0].view(-1), args[1].reshape(-1), *args[2:], **kwargs)
        return args[0], *result[1:]
    if name == "allgather_" and len({tensor.shape for tensor in flat_tensors(args[0])}) > 1:
        return _gather_uneven(args)
    return func(*args, **kwargs)


def _gather_uneven(args: tuple[Any, ...]) -> Any:
    """Gather tensors of several shapes: each rank broadcasts its own, as NCCL does it."""
    (outputs,), (given,), group, *_ = args
    me = group_of(args).rank()
    work = None
    for rank, output in enumerate(outputs):
        if rank == me:
            output.copy_(given)
        _, work = torch.ops.c10d.broadcast_([output], group, rank, 0, True, -1)
        torch.distributed.Work.unbox(work).wait()
    return args[0], work


_NO_NCCL = {torch.int16, torch.uint16, torch.uint32, torch.uint64}


def _check_dtype(name: str, tensor: torch.Tensor) -> None:
    """Refuse what NCCL has no type for (ProcessGroupNCCL.cpp, `getNcclDataType`)."""
    if tensor.dtype in _NO_NCCL:
        scalar = {"int16": "Short", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64"}
        kind = scalar[str(tensor.dtype).removeprefix("torch.")]
        raise RuntimeError(f"Input tensor data type is not supported for NCCL process group: {kind}")
    if tensor.dtype.itemsize == 1 and tensor.is_floating_point() and "reduce" in name:
        raise UnsupportedOpError(f"c10d::{name}: reductions of {tensor.dtype}, which gloo does not have")

"""The operators `c10d.*`: every collective passes here, those of DDP's reducer inside `backward()` too.

NCCL's name stands over gloo (`distributed.py`), and C++ sees tensors of the CPU. So what C++ made itself,
such as the buckets of gradients, gets its label here, and what NCCL takes and gloo does not is adapted.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.labels import label_of, stamp
from dpdemo.virtual.ops.provenance import made_by_cpp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from dpdemo.virtual.state import Session

    Run = Callable[..., Any]

listeners: list[Callable[[str, Any, tuple[Any, ...]], None]] = []
"""Each is called before a collective with its name, its ProcessGroup and its arguments."""
nccl_groups: set[str] = set()
"""Names of the groups whose backend is NCCL alone: all their tensors are on a GPU."""
coalesced: dict[str, list[Any]] = {}
"""By name of the group, the works to wait for once its coalescing manager closes."""

gpu_of_group: dict[str, int] = {}
"""By name of the group, the GPU of its DistributedDataParallel's parameters."""

FUNCTIONAL = {"_c10d_functional", "_c10d_functional_autograd", "_dtensor"}
"""Namespaces of collectives that return their result, as DTensor and tensor parallel use them."""
_BETWEEN_TWO = {"send", "recv_"}
_COPIED = {"allgather_", "reduce_scatter_"}
"""Their lists of tensors are copied: these need not be contiguous."""
_connected: set[tuple[str, int]] = set()
_PATIENCE = timedelta(seconds=30)
_BY_NUMBER_OF_ELEMENTS = {"_allgather_base_", "_reduce_scatter_base_"}
_AVG = 1  # the numbers of ReduceOp.RedOpType
_BITWISE = {5: "BAND", 6: "BOR", 7: "BXOR"}
_REFUSED = {  # in the words of ProcessGroupNCCL.cpp and Backend.hpp
    "recv_any_source_": "ProcessGroupNCCL does not support recvAnysource",
    "allgather_coalesced_": "ProcessGroupNCCL does not support allgather_coalesced",
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
        is_nccl = group.group_name in nccl_groups
        if is_nccl:
            _prepare(session, name, group, args)
        tensors = list(flat_tensors(args))
        for listener in listeners:
            listener(name, group, args)
        if is_nccl and name not in _BETWEEN_TWO:
            _check_own_gpu(session, group, _index_of(session, group, name, args, tensors))
        result = _by_gloo(name, func, args, kwargs) if is_nccl else func(*args, **kwargs)
        if group.group_name in coalesced:
            coalesced[group.group_name].append(result[-1] if isinstance(result, (tuple, list)) else result)
        return result

    return collective


def functional_action(seen: Any) -> Run:
    """Return the action of a functional collective: the `c10d.*` operators that it is made of pass above.

    `seen` makes the context in which they are seen.
    """

    def act(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with seen(session):
            return func._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)

    return act


def _prepare(session: Session, name: str, group: Any, args: tuple[Any, ...]) -> None:
    """Refuse what NCCL refuses, in its words (ProcessGroupNCCL.cpp), and put C++'s tensors on a GPU.

    The buckets of DDP's reducer are C++'s own: they are on the GPU of its parameters. A user's tensor
    without a GPU is the host's.
    """
    bound = group.bound_device_id
    if name in _REFUSED:
        raise NotImplementedError(_REFUSED[name])
    if name == "barrier":
        return
    kind = reduction(args)
    if kind in _BITWISE:
        raise ValueError(f"Cannot use ReduceOp.{_BITWISE[kind]} with NCCL")
    operands = tuple(each for arg in args for each in (arg if _is_nested(arg) else [arg]))
    for tensor, is_cpps in zip(flat_tensors(operands), made_by_cpp(session, operands, {}), strict=True):
        label = label_of(tensor, session.key)
        if label is not None and bound is not None and label.index != bound.index:
            raise torch.distributed.DistBackendError(
                "Attempt to perform collective on tensor not on device passed to init_process_group: "
                f"cuda:{label.index}, not {bound}"
            )
        if label is None and not is_cpps:
            raise RuntimeError("No backend type associated with device type cpu")
        stamp(tensor, session, gpu_of_group.get(group.group_name, session.current.index))
        _check_kind(name, tensor, kind)
    gpus = {label.index for each in flat_tensors(operands) if (label := label_of(each, session.key))}
    if len(gpus) > 1:
        raise ValueError("Expected list of tensors on the same device")
    _check_form(name, args)


def _check_form(name: str, args: tuple[Any, ...]) -> None:
    """Refuse tensors whose sizes or strides do not fit."""
    if name in _BY_NUMBER_OF_ELEMENTS:
        _check_sizes(name, args[0], args[1], group_of(args).size())
    if name == "alltoall_base_":
        for tensor, splits in ((args[0], args[3]), (args[1], args[4])):
            _check_splits(tensor, splits, group_of(args).size())
    if name not in _BETWEEN_TWO:
        _check_contiguous(
            tensor
            for arg in args
            if name not in _COPIED or not _is_nested(arg)
            for tensor in flat_tensors(arg)
        )


def _is_nested(arg: Any) -> bool:
    return isinstance(arg, list) and bool(arg) and isinstance(arg[0], list)


def reduction(args: tuple[Any, ...]) -> int | None:
    """Return the number of the ReduceOp among an operator's arguments, or None."""
    found = _reduction_at(args)
    return None if found is None else int(args[found].op())


def _reduction_at(args: tuple[Any, ...]) -> int | None:
    for index, arg in enumerate(args):
        if isinstance(arg, torch.ScriptObject) and "ReduceOp" in str(arg._type()):
            return index
    return None


def _index_of(
    session: Session, group: Any, name: str, args: tuple[Any, ...], tensors: list[torch.Tensor]
) -> int | None:
    """Return the GPU on which a collective runs; NCCL guesses that of a barrier, where nothing tells it."""
    if name == "barrier":
        devices, bound = args[2], group.bound_device_id
        return int(devices[0]) if devices else getattr(bound, "index", None)
    label = label_of(tensors[0], session.key) if tensors else None
    return None if label is None else label.index


def _check_own_gpu(session: Session, group: Any, index: int | None) -> None:
    """Refuse two ranks on one GPU when NCCL would connect them, at a group's first collective on a GPU."""
    if index is None or group.size() == 1 or (group.group_name, index) in _connected:
        return
    own, store = str(session.visible[index]), torch.distributed.distributed_c10d._world.pg_map[group][1]
    number = sum(connected == group.group_name for connected, _ in _connected)
    _connected.add((group.group_name, index))
    store.set(f"gpu {number} of {group.rank()}", own)
    for rank in range(group.size()):
        if rank == group.rank():
            continue
        key = f"gpu {number} of {rank}"
        if number:
            _await(store, key, rank, index)
        try:
            theirs = store.get(key).decode()
        except torch.distributed.DistNetworkError:
            return  # the rank that hosts the store is done with this collective, and has ended
        if theirs == own:
            raise torch.distributed.DistBackendError(
                "NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)\n"
                f"Duplicate GPU detected : rank {group.rank()} and rank {rank} both on CUDA device {own}; "
                "each rank needs torch.cuda.set_device(LOCAL_RANK) before its first collective"
            )


def _await(store: Any, key: str, rank: int, index: int) -> None:
    """Wait until another rank, too, has come to a further GPU; NCCL would wait for ever."""
    try:
        store.wait([key], _PATIENCE)
    except RuntimeError as error:
        raise torch.distributed.DistBackendError(
            f"this rank begins a collective on cuda:{index} after others on another GPU, and rank {rank} "
            "does not: NCCL would connect them a second time, and hang"
        ) from error


def _by_gloo(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a collective; gloo's refusals have NCCL's name."""
    try:
        return _adapted(name, func, args, kwargs)
    except (RuntimeError, ValueError) as error:
        if "ProcessGroupGloo" not in str(error):
            raise
        raise type(error)(str(error).replace("ProcessGroupGloo", "ProcessGroupNCCL")) from None


def _adapted(name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a collective, in a form that gloo takes."""
    if any(_is_float8(tensor) for tensor in flat_tensors(args)):
        result = _adapted(name, func, torch.utils._pytree.tree_map(_as_bytes, args), kwargs)
        return (args[0], *result[1:]) if isinstance(result, tuple) else result
    if name in _BY_NUMBER_OF_ELEMENTS:
        result = func(args[0].view(-1), args[1].reshape(-1), *args[2:], **kwargs)
        return args[0], *result[1:]
    if name == "allgather_" and len({tensor.shape for tensor in flat_tensors(args[0])}) > 1:
        return _gather_uneven(args)
    if name == "alltoall_":
        return _exchange(*args)
    outputs = list(flat_tensors(args[0]))
    at = _reduction_at(args)
    if at is not None and int(args[at].op()) == _AVG and not _has_fractions(outputs[0]):
        return _averaged(func, args, kwargs, at)
    return func(*args, **kwargs)


def _is_float8(tensor: torch.Tensor) -> bool:
    return tensor.dtype.itemsize == 1 and tensor.is_floating_point()


def _as_bytes(value: Any) -> Any:
    return value.view(torch.uint8) if isinstance(value, torch.Tensor) and _is_float8(value) else value


def _has_fractions(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _averaged(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], at: int) -> Any:
    """Average whole numbers as NCCL does: add, then divide and cut off; argument `at` is the reduction."""
    result = func(*args[:at], torch.classes.c10d.ReduceOp(), *args[at + 1 :], **kwargs)  # a sum
    work = result[-1] if isinstance(result, (tuple, list)) else result
    torch.distributed.Work.unbox(work).wait()
    for output in flat_tensors(args[0]):
        output.copy_(output.div(group_of(args).size(), rounding_mode="trunc"))
    return result


def _exchange(outputs: list[torch.Tensor], given: list[torch.Tensor], group: Any, *others: Any) -> Any:
    """Exchange tensors of any sizes: as one tensor, cut by the numbers of elements."""
    received = torch.cat([torch.empty_like(output).view(-1) for output in outputs])
    sizes = [[tensor.numel() for tensor in tensors] for tensors in (outputs, given)]
    sent = torch.cat([tensor.reshape(-1) for tensor in given])
    work = torch.ops.c10d.alltoall_base_(received, sent, group, *sizes, *others)
    torch.distributed.Work.unbox(work).wait()
    for output, part in zip(outputs, torch.split(received, sizes[0]), strict=True):
        output.copy_(part.view_as(output))
    return outputs, work


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


_NO_NCCL = {
    torch.int16: "Short",
    torch.uint16: "UInt16",
    torch.uint32: "UInt32",
    torch.uint64: "UInt64",
}


def _check_kind(name: str, tensor: torch.Tensor, reduction: int | None) -> None:
    """Refuse kinds of tensors that NCCL has none for (`getNcclDataType`, `getNcclReduceOp`)."""
    if tensor.layout is not torch.strided:
        if name == "allreduce_":
            raise RuntimeError(
                "NCCL does not support all_reduce with sparse tensors. Please use dense tensors instead."
            )
        raise ValueError("Tensors must be CUDA and dense")
    if tensor.dtype in _NO_NCCL:
        raise TypeError(
            f"Input tensor data type is not supported for NCCL process group: {_NO_NCCL[tensor.dtype]}"
        )
    if reduction == _AVG and tensor.dtype is torch.bool:
        raise TypeError("Cannot use ReduceOp.AVG with boolean inputs")
    if reduction is not None and _is_float8(tensor):
        raise UnsupportedOpError(f"c10d::{name}: reductions of {tensor.dtype}, which gloo does not have")


def _check_sizes(name: str, output: torch.Tensor, given: torch.Tensor, size: int) -> None:
    """Compare the whole tensor and the part of each rank, in the words of `ProcessGroupNCCL`."""
    if name == "_allgather_base_":
        if given.dtype != output.dtype:
            raise TypeError("output tensor must have the same type as input tensor")
        if given.numel() * size != output.numel():
            raise ValueError("output tensor size must be equal to world_size times input tensor size")
    else:
        if given.dtype != output.dtype:
            raise TypeError("input tensor must be the same type as the output tensor.")
        if given.numel() != output.numel() * size:
            raise ValueError("input tensor must be the same size as output size times world size")


def _check_splits(tensor: torch.Tensor, splits: list[int], size: int) -> None:
    """Compare the parts of each rank with the tensor, in the words of c10d's `checkSplitSizes`."""
    rows = len(tensor) if tensor.dim() else 1
    if not splits and rows % size:
        raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
    if splits and len(splits) != size:
        raise RuntimeError("Number of tensor splits not equal to group size")
    if splits and sum(splits) != rows:
        raise RuntimeError("Split sizes doesn't match total dim 0 size")


def _check_contiguous(tensors: Iterable[torch.Tensor]) -> None:
    for tensor in tensors:
        is_last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
        if not (is_last or tensor.is_contiguous()):
            raise ValueError("Tensors must be contiguous")

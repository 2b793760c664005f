"""What NCCL refuses of a collective, in the words of `ProcessGroupNCCL.cpp` and `Backend.hpp`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.labels import flat_tensors, label_of, stamp
from dpdemo.virtual.ops.collectives import BETWEEN_TWO, BY_NUMBER_OF_ELEMENTS, Call, gpu_of_group
from dpdemo.virtual.ops.provenance import made_by_cpp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpdemo.virtual.state import Session

AVG = 1  # the numbers of ReduceOp.RedOpType
_BITWISE = {5: "BAND", 6: "BOR", 7: "BXOR"}
_COPIED = {"allgather_", "reduce_scatter_"}
"""Their lists of tensors are copied: these need not be contiguous."""
_REFUSED = {
    "recv_any_source_": "ProcessGroupNCCL does not support recvAnysource",
    "allgather_coalesced_": "ProcessGroupNCCL does not support allgather_coalesced",
    "monitored_barrier_": "ProcessGroup nccl does not support monitoredBarrier, only GLOO supports it",
}
_connected: set[tuple[str, int]] = set()
_PATIENCE = timedelta(seconds=30)
_NO_NCCL = {
    torch.int16: "Short",
    torch.uint16: "UInt16",
    torch.uint32: "UInt32",
    torch.uint64: "UInt64",
}


def prepare(session: Session, call: Call) -> None:
    """Refuse what NCCL refuses, and put C++'s tensors on a GPU.

    C++'s own are on the GPU of the tensors beside them, as the result of a functional collective; the buckets
    of DDP's reducer are on the GPU of its parameters. A user's tensor without a GPU is the host's.
    """
    if call.name in _REFUSED:
        raise NotImplementedError(_REFUSED[call.name])
    if call.name == "barrier":
        return
    kind = call.reduction
    if kind in _BITWISE:
        raise ValueError(f"Cannot use ReduceOp.{_BITWISE[kind]} with NCCL")
    bound = call.group.bound_device_id
    operands = tuple(each for arg in call.args for each in (arg if _is_nested(arg) else [arg]))
    from_cpp = made_by_cpp(session, operands, {})  # by who holds them: nobody else may by now
    tensors = list(flat_tensors(operands))
    labels = [label_of(tensor, session.key) for tensor in tensors]
    gpus = {label.index for label in labels if label is not None}
    cpps_gpu = min(gpus, default=gpu_of_group.get(call.group.group_name, session.current.index))
    for tensor, label, is_cpps in zip(tensors, labels, from_cpp, strict=True):
        if label is not None and bound is not None and label.index != bound.index:
            raise torch.distributed.DistBackendError(
                "Attempt to perform collective on tensor not on device passed to init_process_group: "
                f"cuda:{label.index}, not {bound}"
            )
        if label is None:
            if not is_cpps:
                raise RuntimeError("No backend type associated with device type cpu")
            stamp(tensor, session, cpps_gpu)
        _check_kind(call.name, tensor, kind)
    if len(gpus) > 1:
        raise ValueError("Expected list of tensors on the same device")
    _check_form(call)


def _is_nested(arg: Any) -> bool:
    return isinstance(arg, list) and bool(arg) and isinstance(arg[0], list)


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
    if reduction == AVG and tensor.dtype is torch.bool:
        raise TypeError("Cannot use ReduceOp.AVG with boolean inputs")


def _check_form(call: Call) -> None:
    """Refuse tensors whose sizes or strides do not fit."""
    name, args = call.name, call.args
    if name in BY_NUMBER_OF_ELEMENTS:
        _check_sizes(name, args[0], args[1], call.group.size())
    if name == "alltoall_base_":
        for tensor, splits in ((args[0], args[3]), (args[1], args[4])):
            _check_splits(tensor, splits, call.group.size())
    if name not in BETWEEN_TWO:
        _check_contiguous(
            tensor
            for arg in args
            if name not in _COPIED or not _is_nested(arg)
            for tensor in flat_tensors(arg)
        )


def _check_sizes(name: str, output: torch.Tensor, given: torch.Tensor, size: int) -> None:
    """Compare the whole tensor and the part of each rank."""
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


def check_own_gpu(session: Session, group: Any, index: int | None) -> None:
    """Refuse two ranks on one GPU when NCCL would connect them, at a group's first collective on a GPU."""
    if index is None or (group.group_name, index) in _connected or group.size() == 1:
        return
    mine, store = str(session.visible[index]), torch.distributed.distributed_c10d._world.pg_map[group][1]
    number = sum(connected == group.group_name for connected, _ in _connected)
    _connected.add((group.group_name, index))
    store.set(f"gpu {number} of {group.rank()}", mine)
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
        if theirs == mine:
            raise torch.distributed.DistBackendError(
                "NCCL error: invalid usage (run with NCCL_DEBUG=WARN for details)\n"
                f"Duplicate GPU detected : rank {group.rank()} and rank {rank} both on CUDA device {mine}; "
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

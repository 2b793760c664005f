"""What NCCL refuses of a collective, in the words of `ProcessGroupNCCL.cpp` and `Backend.hpp`.

From torch 2.15 on "nccl" is another implementation, with other words in places: `nccl2/ProcessGroupNCCL.cpp`,
`ProcessGroupNCCLBackend.cpp` and `ProcessGroupNCCLUtils.cpp`, here `is_second`.
"""

from __future__ import annotations

import itertools
import warnings
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.labels import flat_tensors, label_of, stamp
from dpdemo.virtual.ops.collectives import (
    BETWEEN_TWO,
    BY_NUMBER_OF_ELEMENTS,
    Call,
    gpu_of_group,
    second_groups,
)
from dpdemo.virtual.ops.nccl_arithmetic import AVG, BAND, BOR, BXOR, FLOAT8, PREMUL_SUM, SUM
from dpdemo.virtual.ops.premultiplied import current_factor
from dpdemo.virtual.ops.provenance import made_by_cpp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpdemo.virtual.state import Session

_BITWISE = {BAND: "BAND", BOR: "BOR", BXOR: "BXOR"}
_REFUSED = {
    "recv_any_source_": "ProcessGroupNCCL does not support recvAnysource",
    "allgather_coalesced_": "ProcessGroupNCCL does not support allgather_coalesced",
    "monitored_barrier_": "ProcessGroup nccl does not support monitoredBarrier, only GLOO supports it",
}
_FACTORS = {
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.float32: "Float",
    torch.float64: "Double",
}
_FLOATS = set(_FACTORS)
_WHOLE = {torch.bool, torch.int8, torch.uint8, torch.int32, torch.int64}
_BYTES_ONLY = {torch.float8_e4m3fnuz, torch.float8_e5m2fnuz}
"""NCCL copies them, and adds none up."""
_KINDS = _FLOATS | _WHOLE | FLOAT8 | _BYTES_ONLY
_AS_REAL = {"allreduce_": "all_reduce", "reduce_": "reduce", "broadcast_": ""}
"""C++ takes complex numbers here for pairs of real ones; elsewhere Python does."""
_OF_PAIRS = {None, SUM, AVG, PREMUL_SUM}
"""The reductions that may take them so (`isComplexViewAsRealAllowed`)."""
_NAMES = {
    torch.int16: "Short",
    torch.uint16: "UInt16",
    torch.uint32: "UInt32",
    torch.uint64: "UInt64",
    torch.complex32: "ComplexHalf",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
    torch.float8_e8m0fnu: "Float8_e8m0fnu",
}
_COPIED = {"allgather_", "reduce_scatter_"}
"""Their lists of tensors are copied: these need not be contiguous."""
_UNCONVERTIBLE = {"alltoall_base_", "alltoall_", "gather_", "scatter_"}
"""The first implementation runs them as sends and receives, in torch/csrc/cuda/nccl.cpp."""
_LISTS = {"gather_": (0, 1), "scatter_": (1, 0)}
"""By operation, the positions of the root's list and of each rank's own tensor."""
_ANY_LAYOUT = {"allreduce_coalesced_", "allgather_into_tensor_coalesced_", "reduce_scatter_tensor_coalesced_"}
_WARNING = (
    "Detected non-contiguous tensor in P2P operations. It is user responsibility to guarantee that source "
    "and destination tensors have the same contiguity format."
)


def prepare(session: Session, call: Call) -> None:
    """Refuse what NCCL refuses, and put C++'s tensors on a GPU.

    C++'s own are on the GPU of the tensors beside them, as the result of a functional collective; the buckets
    of DDP's reducer are on the GPU of its parameters. A user's tensor without a GPU is the host's.
    """
    is_second = call.group.group_name in second_groups
    if call.name in _REFUSED and not (is_second and call.name == "allgather_coalesced_"):
        raise NotImplementedError(_REFUSED[call.name])
    if call.name == "barrier":
        return
    _put_on_gpu(session, call, is_second)
    tensors = list(flat_tensors(call.args))
    _check_form(call, tensors, is_second)
    for tensor in tensors:
        _check_kind(call.name, tensor.dtype, call.reduction, is_second)


def _put_on_gpu(session: Session, call: Call, is_second: bool) -> None:
    from_cpp: Iterable[bool] = itertools.repeat(False)
    if any(label_of(tensor, session.key) is None for tensor in flat_tensors(call.args)):
        operands = tuple(each for arg in call.args for each in (arg if _is_nested(arg) else [arg]))
        from_cpp = made_by_cpp(session, operands, {})  # by who holds them: nobody else may by now
    tensors = list(flat_tensors(call.args))
    labels = [label_of(tensor, session.key) for tensor in tensors]
    gpus = {label.index for label in labels if label is not None}
    cpps_gpu = min(gpus, default=gpu_of_group.get(call.group.group_name, session.current.index))
    bound = call.group.bound_device_id
    for tensor, label, is_cpps in zip(tensors, labels, from_cpp, strict=False):
        if label is not None and bound is not None and label.index != bound.index:
            if is_second:
                raise RuntimeError(
                    f"ProcessGroupNCCL is bound to device {bound} but an operation was issued on "
                    f"cuda:{label.index}"
                )
            raise torch.distributed.DistBackendError(
                "Attempt to perform collective on tensor not on device passed to init_process_group: "
                f"cuda:{label.index}, not {bound}"
            )
        if label is None:
            if not is_cpps:
                raise RuntimeError("No backend type associated with device type cpu")
            stamp(tensor, session, cpps_gpu)
    if len(gpus) > 1:
        raise ValueError("Expected list of tensors on the same device")


def _is_nested(arg: Any) -> bool:
    return isinstance(arg, list) and bool(arg) and isinstance(arg[0], list)


def _check_kind(name: str, dtype: torch.dtype, reduction: int | None, is_second: bool) -> None:
    """Refuse types of numbers that NCCL has none for (`getNcclDataType`, `getNcclReduceOp`), in its order."""
    if dtype.is_complex and name in _AS_REAL:
        if reduction not in _OF_PAIRS:
            raise RuntimeError(f"{_AS_REAL[name]} does not support this reduction on complex tensors")
        return
    if dtype not in _KINDS and str(dtype) != "torch.float4_e2m1fn_x2":
        _refuse_kind(name, dtype, is_second)
    if reduction is None:
        return
    if dtype not in _KINDS - _BYTES_ONLY:
        word = "Float8" if dtype in _BYTES_ONLY else "Float4"
        raise RuntimeError(f"Unsupported {word} type for NCCL reduction")
    if reduction in _BITWISE:
        raise ValueError(f"Cannot use ReduceOp.{_BITWISE[reduction]} with NCCL")
    if reduction == AVG and dtype is torch.bool:
        raise TypeError("Cannot use ReduceOp.AVG with boolean inputs")
    if reduction == PREMUL_SUM and dtype not in _FLOATS:
        kind = RuntimeError if is_second else TypeError
        raise kind("PreMulSum Data type must be half, float, bfloat16 or double")
    if reduction == PREMUL_SUM:
        _check_factor(dtype, is_second)


def _check_factor(dtype: torch.dtype, is_second: bool) -> None:
    """Refuse a factor in a tensor of another type."""
    factor = current_factor()
    if not isinstance(factor, torch.Tensor) or factor.dtype is dtype:
        return
    if is_second:
        raise RuntimeError("PreMulSum factor type must match input data type")
    if dtype is not torch.bfloat16:  # the first implementation asks for another type there
        found = _FACTORS.get(factor.dtype, str(factor.dtype))
        raise RuntimeError(f"expected scalar type {_FACTORS[dtype]} but found {found}")


def _refuse_kind(name: str, dtype: torch.dtype, is_second: bool) -> None:
    word = _NAMES.get(dtype, str(dtype))
    if is_second:
        raise RuntimeError("Unsupported tensor data type for NCCL")
    if name in _UNCONVERTIBLE:
        raise RuntimeError(f"Unconvertible NCCL type {word}")
    raise TypeError(f"Input tensor data type is not supported for NCCL process group: {word}")


def _check_form(call: Call, tensors: list[torch.Tensor], is_second: bool) -> None:
    """Refuse tensors whose layouts, sizes or strides do not fit."""
    name, args = call.name, call.args
    if any(tensor.layout is not torch.strided for tensor in tensors):
        if name == "allreduce_":
            raise RuntimeError(
                "NCCL does not support all_reduce with sparse tensors. Please use dense tensors instead."
            )
        raise ValueError("Tensors must be CUDA and dense")
    if not all(map(_is_contiguous, tensors)):
        _check_strides(name, args, is_second)
    if name in BY_NUMBER_OF_ELEMENTS:
        _check_sizes(name, args[0], args[1], call.group.size(), is_second)
    if (name in _LISTS or name == "gather_into_tensor_") and call.group.rank() == args[3]:
        _check_roots(name, args, call.group.size())
    if name == "alltoall_base_":
        is_even = not is_second and not args[3] and not args[4]
        for tensor, splits in ((args[0], args[3]), (args[1], args[4])):
            _check_splits(_length(tensor, is_even), splits, call.group.size())


def _check_roots(name: str, args: tuple[Any, ...], size: int) -> None:
    """Compare the root's list, or its one output, with its tensor (`assertTypeAndSizesMatch`)."""
    if name not in _LISTS:
        if args[0].dtype != args[1].dtype:
            raise RuntimeError("output tensor must have the same type as input tensor")
        if args[0].numel() != args[1].numel() * size:
            raise RuntimeError("output tensor size must be equal to world_size times input tensor size")
        return
    list_at, tensor_at = _LISTS[name]
    what, side = name.strip("_"), "output" if name == "gather_" else "input"
    parts, shape = args[list_at][0], args[tensor_at][0].shape
    if len(parts) != size:
        raise ValueError(
            f"ProcessGroupNCCL::{what}: Incorrect {side} list size {len(parts)}. {side.capitalize()} list "
            f"size should be {size}, same as size of the process group."
        )
    for index, part in enumerate(parts):
        if part.shape != shape:
            raise ValueError(
                f"ProcessGroupNCCL::{what}: invalid tensor size at index {index} "
                f"(expected {tuple(shape)}, got {tuple(part.shape)})"
            )


def _check_sizes(name: str, output: torch.Tensor, given: torch.Tensor, size: int, is_second: bool) -> None:
    """Compare the whole tensor and the part of each rank."""
    if name == "_allgather_base_":
        if given.dtype != output.dtype:
            raise TypeError("output tensor must have the same type as input tensor")
        if given.numel() * size != output.numel():
            if is_second:
                raise RuntimeError(
                    "Output tensor size must be input_size * comm_size for allGatherSingleImpl"
                )
            raise ValueError("output tensor size must be equal to world_size times input tensor size")
    else:
        if given.dtype != output.dtype:
            raise TypeError("input tensor must be the same type as the output tensor.")
        if given.numel() != output.numel() * size:
            if is_second:
                raise RuntimeError(
                    "Input tensor size must be output_size * comm_size for reduceScatterSingleImpl"
                )
            raise ValueError("input tensor must be the same size as output size times world size")


def _length(tensor: torch.Tensor, is_even: bool) -> int:
    """Return the number of elements, which the first implementation cuts evenly, or else of rows."""
    return tensor.numel() if is_even or not tensor.dim() else len(tensor)


def _check_splits(length: int, splits: list[int], size: int) -> None:
    """Compare the parts of each rank with the rows of a tensor, in the words of c10d's `checkSplitSizes`."""
    if not splits and length % size:
        raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
    if splits and len(splits) != size:
        raise RuntimeError("Number of tensor splits not equal to group size")
    if splits and sum(splits) != length:
        raise RuntimeError("Split sizes doesn't match total dim 0 size")


def _check_strides(name: str, args: tuple[Any, ...], is_second: bool) -> None:
    """Refuse tensors with gaps or in another order, where the implementation does."""
    if is_second or name not in _ANY_LAYOUT | BETWEEN_TWO:
        copied = not is_second and name in _COPIED
        _check_contiguous(
            tensor for arg in args if not (copied and _is_nested(arg)) for tensor in flat_tensors(arg)
        )
        return
    for tensor in flat_tensors(args):
        if _is_contiguous(tensor):
            continue
        if not torch.ops.aten.is_non_overlapping_and_dense(tensor):
            where = "for P2P " if name in BETWEEN_TWO else ""
            raise ValueError(f"Tensors {where}must be non-overlapping and dense")
        if name in BETWEEN_TWO:
            warnings.warn(_WARNING, stacklevel=2)


def _check_contiguous(tensors: Iterable[torch.Tensor]) -> None:
    if not all(map(_is_contiguous, tensors)):
        raise ValueError("Tensors must be contiguous")


def _is_contiguous(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has no gaps, in rows or with the channels last (`suggest_memory_format`)."""
    if tensor.is_contiguous():
        return True
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    return last is not None and tensor.is_contiguous(memory_format=last)

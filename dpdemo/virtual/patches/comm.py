"""The functions of `torch._C` on which `nn.DataParallel` rests; only CUDA builds have them.

With these in place all of `torch/nn/parallel` is PyTorch's own. Checks, words and what shares memory with
what follow torch/csrc/cuda/comm.cpp (2.13), function by function. Like C++ they ask no tensor subclass:
`scatter` gives plain tensors, and uninitialised parameters get as far as `_replicate_for_data_parallel`'s
error.
"""

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, _utils

from dpdemo.virtual.applying import stands_in
from dpdemo.virtual.blocks import Kind
from dpdemo.virtual.kinds import mark, mark_forward
from dpdemo.virtual.labels import as_cpp, gpu_of, stamp_all
from dpdemo.virtual.ledger import Allocation
from dpdemo.virtual.ops.known import know_parts
from dpdemo.virtual.ops.memo import shapes_of
from dpdemo.virtual.state import Session, the_session
from dpdemo.virtual.transfer import move, num_bytes

_coalescing: Any = _utils
_flatten: Any = torch._C._nn.flatten_dense_tensors
_unflatten: Any = torch._C._nn.unflatten_dense_tensors
_SEAM = "DataParallel rests on it: absent in CPU builds, real devices in CUDA builds"


def _wrap_dim(dim: int, tensor: Tensor) -> int:
    """Count a negative `dim` from the end (c10/core/WrapDimMinimal.h)."""
    if not tensor.dim():
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    tensor.size(dim)  # PyTorch's error for a dimension that does not exist
    return dim % tensor.dim()


@stands_in(torch._C, "_broadcast", why=_SEAM)
@as_cpp
def broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    """Copy `tensor` to each device; where it is already, return it itself."""
    if any(device < 0 for device in devices):
        raise RuntimeError(f"Expected non-negative device index, but got {min(devices)}")
    return [_on(tensor, device) for device in devices]


def _on(tensor: Tensor, device: int) -> Tensor:
    return move(tensor, the_session().check_ordinal(device))


@stands_in(torch._C, "_broadcast_coalesced", why=_SEAM)
@as_cpp
def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int
) -> list[list[Tensor]]:
    """Copy `tensors` to each device in buffers of `buffer_size` bytes; the first device gets them themselves.

    That the first device's are the same tensors is what lets replica 0 update the module's buffers in place.
    """
    if any(gpu_of(tensor) != devices[0] for tensor in tensors):
        raise RuntimeError(f"All tensors must be on devices[0]: {devices[0]}")
    copies: list[list[Tensor]] = [[] for _ in devices[1:]]
    order: list[int] = []
    positions = defaultdict(list)  # a tensor may come twice
    for position, tensor in enumerate(tensors):
        positions[id(tensor)].append(position)
    ledger = the_session().ledger
    for chunk in _coalescing._take_tensors(list(tensors), buffer_size):
        order.extend(positions[id(tensor)].pop(0) for tensor in chunk)
        # C++ makes the buffer here, and sends copies of it; a single tensor is sent as it is
        is_kept = devices[0] in devices[1:] and not chunk[0].is_sparse
        buffer_bytes = sum(map(num_bytes, chunk)) if len(chunk) > 1 and not is_kept else 0
        buffer = Allocation(ledger, devices[0], buffer_bytes)
        at_home = _flat(chunk, devices[0], copies_one=False) if is_kept else None
        for device, outputs in zip(devices[1:], copies, strict=True):
            if chunk[0].is_sparse:
                outputs.extend(_on(tensor, device) for tensor in chunk)
                continue
            flat = at_home if device == devices[0] else None  # named again: it gets the buffer itself
            if flat is None:
                flat = _flat(chunk, the_session().check_ordinal(device), copies_one=True)
                ledger.transfer(devices[0], device, num_bytes(flat))
            outputs.extend(_parts(flat, chunk, device))
        del buffer
    back = sorted(range(len(order)), key=order.__getitem__)
    return [list(tensors), *([outputs[place] for place in back] for outputs in copies)]


def _flat(chunk: Sequence[Tensor], device: int, *, copies_one: bool) -> Tensor:
    """Put tensors behind each other in a buffer on a device; a single one may be the buffer itself."""
    session = the_session()
    with quietly(session):
        is_meta = session.is_meta
        flat: Tensor = shapes_of(_flatten, _flatten, (chunk,), {}) if is_meta else _flatten(chunk)
        if len(chunk) == 1 and not copies_one:
            return flat
        if len(chunk) == 1:
            flat = flat.clone()
        stamp_all(flat, session, device)
    know_parts(chunk, flat)
    mark(flat, Kind.REPLICA)
    return flat


def _parts(flat: Tensor, chunk: Sequence[Tensor], device: int) -> Sequence[Tensor]:
    """Return the tensors that a buffer holds, as views of it.

    Each has its version counter, as `.data` has (NOTE [ Version Counter in comm.*_coalesced ]).
    """
    session = the_session()
    with quietly(session):
        parts = [part.data for part in _unflatten(flat, chunk)]
        stamp_all([part for part in parts if not part.numel()], session, device)  # these are no views of it
    return parts


@contextlib.contextmanager
def quietly(session: Session) -> Iterator[None]:
    """Hide our own operators from dispatch modes and autograd."""
    with torch._C._DisableTorchDispatch(), torch.no_grad(), session.current.having("sees_as_cpp", True):
        yield


@stands_in(torch._C, "_scatter", why=_SEAM)
@as_cpp
def scatter(
    tensor: Tensor, devices: Sequence[int], chunk_sizes: Sequence[int] | None, dim: int, streams: Any
) -> list[Tensor]:
    """Split `tensor` along `dim` and send each chunk to its device; one that is there stays a view."""
    del streams  # copies are done when they return
    if not devices:
        raise RuntimeError("Expected at least one device to scatter to")
    if chunk_sizes is None:
        chunks = tensor.chunk(len(devices), dim)
    else:
        if len(chunk_sizes) != len(devices):
            raise RuntimeError(
                "Expected devices and chunk_sizes to be of same length, but got "
                f"len(devices) = {len(devices)} and len(chunk_sizes) = {len(chunk_sizes)}"
            )
        chunks = tensor.split_with_sizes(list(chunk_sizes), dim)
    # Real GPUs give `Gather.backward` chunks on the CPU for index -1 (outputs gathered from CPU inputs).
    placed = []
    for chunk, device in zip(chunks, devices, strict=False):
        home = gpu_of(chunk)
        there = chunk if home == device else move(chunk, None) if device < 0 else _on(chunk, device)
        if home != device >= 0:
            mark_forward((there,), Kind.INPUT)
        placed.append(there)
    return placed


@stands_in(torch._C, "_gather", why=_SEAM)
@as_cpp
def gather(tensors: Sequence[Tensor], dim: int, destination: int | None) -> Tensor:
    """Concatenate `tensors` along `dim` on GPU `destination`; -1 is the CPU, None the current GPU."""
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    dim, sizes, memory_format = _gathered_layout(tensors, dim)
    device = "cpu" if destination == -1 else "cuda" if destination is None else f"cuda:{destination}"
    result = torch.empty(sizes, dtype=tensors[0].dtype, device=device, memory_format=memory_format)
    mark_forward((result,), Kind.GATHERED)
    places = result.split_with_sizes([tensor.size(dim) for tensor in tensors], dim)
    for tensor, place in zip(tensors, places, strict=True):
        place.copy_(tensor)
    know_parts(tensors, result, dim)
    return result


def _gathered_layout(tensors: Sequence[Tensor], dim: int) -> tuple[int, list[int], torch.memory_format]:
    """Check that `tensors` fit together, and return the result's dim, sizes and memory format."""
    first = tensors[0]
    dim = _wrap_dim(dim, first)
    expected = list(first.shape)
    memory_format = _suggested_format(first)
    for position, tensor in enumerate(tensors):
        if not tensor.is_cuda:
            raise RuntimeError(
                f"Expected all input tensors to be CUDA tensors, but tensor at index {position} has device "
                f"'{tensor.device}'"
            )
        if tensor.dim() != len(expected):
            raise RuntimeError(
                "Expected all input tensors to have the same number of dimensions, but tensor at index "
                f"{position}has {tensor.dim()} dimensions, (expected {len(expected)})"
            )
        expected[dim] = tensor.size(dim)
        if list(tensor.shape) != expected:
            raise RuntimeError(
                f"Input tensor at index {position} has invalid shape {list(tensor.shape)}, "
                f"but expected {list(expected)}"
            )
        if _suggested_format(tensor) != memory_format:
            memory_format = torch.contiguous_format
    expected[dim] = sum(tensor.size(dim) for tensor in tensors)
    return dim, expected, memory_format


def _suggested_format(tensor: Tensor) -> torch.memory_format:
    """Return the memory format that a copy of `tensor` would take (TensorImpl::suggest_memory_format).

    The rule is `is_channels_last_strides_2d` and `_3d` of c10/core/MemoryFormat.h: strides that grow from the
    channels over width and height to the batch. torch._prims_common has it in Python, but loads half a second
    of sympy for it.
    """
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if tensor.layout != torch.strided or tensor.dim() not in formats or tensor.stride(1) == 0:
        return torch.contiguous_format
    least = 0
    for dim in (1, *range(tensor.dim() - 1, 1, -1), 0):
        size, stride = tensor.size(dim), tensor.stride(dim)
        if size == 0 or stride < least or (dim == 0 and least == tensor.stride(1)):
            return torch.contiguous_format
        least = stride * size
    return formats[tensor.dim()]

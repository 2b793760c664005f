"""Sums of gradients over GPUs: NCCL's reduction, and many tensors put into one and taken apart again."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.cuda.nccl
from torch import Tensor

from dpdemo.virtual.applying import stands_in
from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.labels import as_cpp, gpu_of, stamp
from dpdemo.virtual.ops.known import forget, is_unknown
from dpdemo.virtual.ops.memo import shapes_of
from dpdemo.virtual.patches.comm import quietly
from dpdemo.virtual.state import is_seen_by_us_alone, the_session
from dpdemo.virtual.transfer import num_bytes

_flatten: Any = torch._C._nn.flatten_dense_tensors
_unflatten: Any = torch._C._nn.unflatten_dense_tensors
_VIEWS = "C++ runs a view and a slice for each tensor, hundreds in a step"


@stands_in(torch.cuda.nccl, "is_available", why="NCCL adds gradients up for DataParallel")
@as_cpp
def can_reduce(tensors: Sequence[Tensor]) -> bool:
    """Return whether NCCL can reduce: dense, contiguous tensors, on different GPUs."""
    homes = {gpu_of(tensor) for tensor in tensors}
    fit = all(tensor.layout is torch.strided and tensor.is_contiguous() for tensor in tensors)
    return fit and None not in homes and len(homes) == len(tensors)


@stands_in(torch._C, "_nccl_reduce", why="DataParallel rests on it: absent in CPU builds")
@as_cpp
def nccl_reduce(  # noqa: PLR0913, PLR0917 - PyTorch's own
    inputs: Sequence[Tensor], output: Tensor, root: int, op: int, streams: Any, comms: Any
) -> None:
    """Add `inputs` up in `output`, on the GPU of input `root`: NCCL adds while it sends, and needs no room.

    Raises:
        UnsupportedOpError: another operation than a sum.

    """
    del streams, comms
    if op != torch.cuda.nccl.SUM:
        raise UnsupportedOpError(f"torch.cuda.nccl.reduce: expected the operation SUM, got number {op}")
    session = the_session()
    others = [tensor for place, tensor in enumerate(inputs) if place != root]
    with quietly(session):
        total = inputs[root] if output is inputs[root] else output.copy_(inputs[root])
        for other in others:
            total.add_(other)
        forget(total)
    for other in others:
        session.ledger.transfer(gpu_of(other), gpu_of(output), num_bytes(other))


@stands_in(torch._C._nn, "flatten_dense_tensors", why=_VIEWS)
@as_cpp
def _flattened(tensors: Sequence[Tensor]) -> Tensor:
    """Put tensors into one; nothing in it is counted or can fail, so dispatch need not see it."""
    homes = {gpu_of(tensor) for tensor in tensors}
    if len(homes) != 1 or homes == {None} or not _are_plain(tensors):
        whole: Tensor = _flatten(tensors)
        return whole
    session = the_session()
    if session.is_meta:
        if torch.is_grad_enabled() or not all(map(is_unknown, tensors)):
            return _flatten(tensors)  # type: ignore[no-any-return]
        with quietly(session):
            whole = shapes_of(_flatten, _flatten, (tensors,), {})
    else:
        with torch._C._DisableTorchDispatch():
            whole = _flatten(tensors)
    stamp(whole, the_session(), homes.pop())  # type: ignore[arg-type] # not None: seen above
    return whole


@stands_in(torch._C._nn, "unflatten_dense_tensors", why=_VIEWS)
@as_cpp
def _unflattened(whole: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    index = gpu_of(whole)
    if index is not None and _are_plain((whole, *tensors)):
        with torch._C._DisableTorchDispatch():
            parts: list[Tensor] = _unflatten(whole, tensors)
    else:
        parts = _unflatten(whole, tensors)
    for part in parts if index is not None else ():
        if not part.numel():  # C++ makes a new tensor with a new storage
            stamp(part, the_session(), index)  # type: ignore[arg-type] # not None: it has parts
    return parts


def _are_plain(tensors: Sequence[Tensor]) -> bool:
    """Return whether tensors can be put together and taken apart by views alone."""
    return is_seen_by_us_alone(also_meta=True) and all(
        isinstance(tensor, torch.Tensor)
        and type(tensor).__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        for tensor in tensors
    )

"""Moving a tensor between the host and the GPUs, with gradients that travel back."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

from dpdemo.virtual.kinds import mark_forward
from dpdemo.virtual.labels import label_of, stamp_all
from dpdemo.virtual.ledger import Kind
from dpdemo.virtual.numberless import META, beneath
from dpdemo.virtual.state import the_session

_original_to = torch.Tensor.to


class ToCopy(torch.autograd.Function):
    """A copy onto another device; its gradient is the copy back.

    `aten::_to_copy` has such a gradient too (ToCopyBackward), but it would compare C++'s devices, which are
    the same.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(tensor: torch.Tensor, target: int | None, options: dict[str, Any]) -> torch.Tensor:
        """Copy `tensor` to GPU `target`, or to the CPU if that is None."""
        return copy_across(tensor, target, options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ARG004
        """Keep where the tensor came from; apart from `forward`, as `torch.func` needs it."""
        ctx.source = device_index(inputs[0])
        ctx.dtype = inputs[0].dtype
        ctx.target = inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """Copy the gradient back to where the tensor came from."""
        return move(gradients[0], ctx.source, dtype=ctx.dtype), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> torch.Tensor:
        """Copy the tangent along (forward-mode differentiation)."""
        return move(tangents[0], ctx.target)


def device_index(tensor: torch.Tensor) -> int | None:
    """Return the GPU that `tensor` is on, or None if it is not on one."""
    session = the_session()
    if session.is_meta and session.current.is_beneath:
        return None
    label = label_of(tensor, session.key)
    return None if label is None else label.index


def copy_across(tensor: torch.Tensor, target: int | None, options: dict[str, Any]) -> torch.Tensor:
    """Copy `tensor` to `target` without recording a gradient, and count the bytes."""
    session = the_session()
    source = device_index(tensor)
    where = {"device": META} if session.is_meta and target is not None else {}
    with torch._C._DisableTorchDispatch(), beneath(session):
        result = _original_to(tensor.detach(), **{**options, **where, "copy": True})
    if target is not None:
        stamp_all(result, session, target)
    session.ledger.transfer(source, target, num_bytes(result))
    if source is None:
        mark_forward((result,), Kind.INPUT)
    return result


def num_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of `tensor`'s elements; for a sparse one, of those that are stored."""
    if tensor.layout is torch.sparse_coo:
        return tensor._values().nbytes + tensor._indices().nbytes
    return tensor.nbytes if tensor.layout is torch.strided else 0


def move(tensor: torch.Tensor, target: int | None, **options: Any) -> torch.Tensor:
    """Return `tensor` on GPU `target` (None: on the CPU), itself if it is there already."""
    if device_index(tensor) == target:
        return _original_to(tensor, **options) if options else tensor
    if (tensor.requires_grad and torch.is_grad_enabled()) or forward_ad._current_level >= 0:
        result: torch.Tensor = ToCopy.apply(tensor, target, options)  # type: ignore[no-untyped-call]
        return result
    return copy_across(tensor, target, options)

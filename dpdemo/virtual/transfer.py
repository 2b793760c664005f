"""Moving a tensor between the host and the GPUs, with gradients that travel back."""

from typing import Any

import torch
from torch.autograd import forward_ad

from dpdemo.virtual.blocks import Kind
from dpdemo.virtual.errors import needs_numbers
from dpdemo.virtual.kinds import mark_forward
from dpdemo.virtual.labels import gpu_of, has_operators_of_its_own, stamp_all
from dpdemo.virtual.ops.known import LARGEST, META, copy_shadow, numbers_of
from dpdemo.virtual.state import Session, the_session

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
        ctx.source = gpu_of(inputs[0])
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


ToCopy._backward_cls.__name__ = "ToCopyBackward0"  # as a repr shows it


def copy_across(tensor: torch.Tensor, target: int | None, options: dict[str, Any]) -> torch.Tensor:
    """Copy `tensor` to `target` without recording a gradient, and count the bytes."""
    session = the_session()
    if has_operators_of_its_own(type(tensor)):
        return _copy_parts(session, tensor, target, options)
    source = gpu_of(tensor)
    with torch._C._DisableTorchDispatch(), session.current.having("sees_as_cpp", True):
        result = _copied(tensor.detach(), target, options)
    if target is not None:
        stamp_all(result, session, target)
    session.ledger.transfer(source, target, num_bytes(result))
    if source is None:
        mark_forward((result,), Kind.INPUT)
    return result


def _copy_parts(
    session: Session, tensor: torch.Tensor, target: int | None, options: dict[str, Any]
) -> torch.Tensor:
    """Copy a tensor that wraps others: its class copies each (`rules.py` counts them)."""
    device = torch.device("cpu") if target is None else session.devices[target]
    with session.current.having("names_host", True):
        result: torch.Tensor = torch.ops.aten._to_copy.default(tensor.detach(), device=device, **options)
    return result


def _copied(tensor: torch.Tensor, target: int | None, options: dict[str, Any]) -> torch.Tensor:
    """Copy the numbers of `tensor`, if it has any; a copy that has none takes over what is known of them."""
    options = {**options, "copy": True}
    if not the_session().is_meta:
        return _original_to(tensor, **options)
    if tensor.is_nested:
        raise needs_numbers("Tensor.to of a nested tensor")
    numbers = numbers_of(tensor) if target is None else None
    if numbers is not None and numbers.nbytes <= LARGEST:
        return _original_to(numbers, **options)
    result = _original_to(tensor, **options, device=META)
    copy_shadow(tensor, result)
    return result


def num_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of `tensor`'s elements; for a sparse one, of those that are stored."""
    if tensor.layout is torch.sparse_coo:
        return tensor._values().nbytes + tensor._indices().nbytes
    return tensor.nbytes if tensor.layout is torch.strided else 0


def move(tensor: torch.Tensor, target: int | None, **options: Any) -> torch.Tensor:
    """Return `tensor` on GPU `target` (None: on the CPU), itself if it is there already."""
    if target is not None and tensor.is_meta and not the_session().is_meta:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    if gpu_of(tensor) == target:
        return _original_to(tensor, **options) if options else tensor
    if (tensor.requires_grad and torch.is_grad_enabled()) or forward_ad._current_level >= 0:
        result: torch.Tensor = ToCopy.apply(tensor, target, options)  # type: ignore[no-untyped-call]
        return result
    return copy_across(tensor, target, options)

"""Shapes that are worked out at once where PyTorch's own kernels, written in Python, take long.

Each shortcut takes the plain case (one dtype, one layout, shapes that fit) and leaves all else to PyTorch,
errors above all. A step of a decoder spends half of its time in these few operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.ops.shapes import shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

aten = torch.ops.aten
_FAST = "PyTorch's own takes a millisecond"
# Where operands are alike, so is the result.
_ALIKE = (
    *(aten.gelu.default, aten.gelu_backward.default, aten.silu.default, aten.silu_backward.default),
    *(aten.tanh_backward.default, aten.sigmoid_backward.default, aten.threshold_backward.default),
    *(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor),
)
_BROADCASTING = {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor}
# As they are before a block of virtual GPUs replaces them: a shape needs no device
_empty_like = torch.empty_like
_broadcast_shapes: Callable[..., Sequence[int]] = torch.broadcast_shapes


def _are_alike(first: Tensor, others: tuple[Any, ...]) -> bool:
    """Return whether operands are floating-point, contiguous, and of one shape and dtype."""
    if not (isinstance(first, torch.Tensor) and first.is_floating_point() and first.is_contiguous()):
        return False
    shape, dtype = first.shape, first.dtype
    return all(
        other.shape == shape and other.dtype == dtype and other.is_contiguous()
        for other in others
        if isinstance(other, torch.Tensor)
    ) and not any(isinstance(other, complex) for other in others)


def _are_alike_but_for_shape(first: Any, others: tuple[Any, ...]) -> bool:
    """Return whether two operands are floating-point tensors, contiguous and of one dtype.

    Then the result is contiguous, too: TensorIterator swaps no dimensions of such operands.
    """
    are_two = len(others) == 1 and isinstance(first, torch.Tensor) and isinstance(others[0], torch.Tensor)
    if not are_two or not first.is_floating_point():  # `1 + tensor` has a number first
        return False
    other = others[0]
    is_lone = not first.dim() or not other.dim()  # its dtype may give way
    return first.dtype == other.dtype and first.is_contiguous() and other.is_contiguous() and not is_lone


def _register_alike(op: Any) -> None:
    @shape_of(op, why=_FAST)
    def shape(first: Tensor, *others: Any, **options: Any) -> Tensor:
        if _are_alike(first, others):
            return _empty_like(first, memory_format=torch.contiguous_format)
        if op in _BROADCASTING and _are_alike_but_for_shape(first, others):
            return first.new_empty(_broadcast(first.shape, others[0].shape))
        result: Tensor = op(first, *others, **options)
        return result


def _broadcast(left: Sequence[int], right: Sequence[int]) -> Sequence[int]:
    """Return the shape to which two operands broadcast; PyTorch's error where they do not.

    It is `torch.broadcast_shapes`, which takes ten times as long.
    """
    if len(left) < len(right):
        left, right = right, left
    padded = (*(1,) * (len(left) - len(right)), *right)
    pairs = list(zip(left, padded, strict=True))
    if any(one != other and 1 not in {one, other} for one, other in pairs):
        return _broadcast_shapes(left, right)
    return [other if one == 1 else one for one, other in pairs]


@shape_of(aten.select_backward.default, why=_FAST)
def _select_backward(grad: Tensor, sizes: Sequence[int], *_: int) -> Tensor:
    return grad.new_empty(sizes)


for _op in _ALIKE:
    _register_alike(_op)


@shape_of(aten.addmm.default, why=_FAST)
def _addmm(bias: Tensor, left: Tensor, right: Tensor, **options: Any) -> Tensor:
    is_plain = (
        left.dim() == right.dim() == 2
        and bias.dim() == 1
        and left.size(1) == right.size(0)
        and bias.size(0) == right.size(1)
        and bias.dtype == left.dtype == right.dtype
    )
    if is_plain:
        return left.new_empty(left.size(0), right.size(1))
    result: Tensor = aten.addmm.default(bias, left, right, **options)
    return result


@shape_of(aten.native_layer_norm.default, why=_FAST)
def _layer_norm(
    data: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, ...]:
    if not _is_plain_norm(data, shape, weight, bias):
        results: tuple[Tensor, ...] = aten.native_layer_norm.default(data, shape, weight, bias, eps)
        return results
    rows = [*data.shape[: data.dim() - len(shape)], *[1] * len(shape)]
    dtype = torch.float32 if data.element_size() < 4 else data.dtype  # sums are kept in float32 at least
    kept = [data.new_empty(rows, dtype=dtype) for _ in range(2)]
    return (_empty_like(data, memory_format=torch.contiguous_format), *kept)


def _is_plain_norm(data: Tensor, shape: Sequence[int], *parameters: Tensor | None) -> bool:
    fits = list(data.shape[data.dim() - len(shape) :]) == list(shape)
    return (
        fits
        and data.is_floating_point()
        and all(parameter is None or list(parameter.shape) == list(shape) for parameter in parameters)
    )


@shape_of(aten.native_layer_norm_backward.default, why=_FAST)
def _layer_norm_backward(_: Tensor, data: Tensor, *args: Any) -> tuple[Tensor | None, ...]:
    weight, bias, wanted = args[-3:]
    results = (data, weight, bias)
    return tuple(
        _empty_like(like, memory_format=torch.contiguous_format) if is_wanted and like is not None else None
        for like, is_wanted in zip(results, wanted, strict=True)
    )

"""Operators that PyTorch cannot run without numbers although their shapes are known, or for other shapes.

`meta.py` asks here first. Each entry takes the operator's arguments, without numbers, and returns what
the kernel for numbers would: no more and no less, since all of it is counted.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch._prims_common import suggest_memory_format

from dpdemo.virtual.ops.known import numbers_of
from dpdemo.virtual.ops.special import on
from dpdemo.virtual.ops.widening import dtype_name
from dpdemo.virtual.state import the_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Shape = Callable[..., Any]

aten = torch.ops.aten
shape_of = functools.partial(on, "shape")


def _like(place: int) -> Shape:
    """Return a tensor like the argument at a place."""
    return lambda *args, **_: torch.empty_like(args[place])


shape_of(
    aten._nested_tensor_from_mask_left_aligned.default,
    why="nested tensors need numbers; an encoder pads instead if this returns False",
)(lambda *_: False)
shape_of(
    *(aten.multi_margin_loss_backward.default, aten.multilabel_margin_loss_backward.default),
    *(aten._ctc_loss_backward.Tensor,),
    why="it has no kernel without numbers",
)(_like(1))
shape_of(
    aten._transformer_encoder_layer_fwd.default, why="it has no kernel without numbers before torch 2.13"
)(_like(0))


@shape_of(
    aten.native_batch_norm.default,
    why="cuDNN and the CPU write rows in order, whatever the input's, and keep nothing in evaluation",
)
def _batch_norm(data: Tensor, *args: Any) -> tuple[Tensor, ...]:
    _, *kept = aten.native_batch_norm.default(data, *args)
    result = torch.empty_like(data, memory_format=suggest_memory_format(data))
    is_training = args[4]
    return (result, *kept) if is_training else (result, data.new_empty(0), data.new_empty(0))


@shape_of(
    aten.native_batch_norm_backward.default,
    why="cuDNN and the CPU write rows in order here too, and no gradient that is not wanted",
)
def _batch_norm_backward(grad: Tensor, data: Tensor, *args: Any) -> tuple[Tensor | None, ...]:
    _, *others = aten.native_batch_norm_backward.default(grad, data, *args)
    results = (torch.empty_like(data, memory_format=suggest_memory_format(data)), *others)
    wanted = args[-1]
    return tuple(result if is_wanted else None for result, is_wanted in zip(results, wanted, strict=True))


def _format_of_cudnn(data: Tensor, weight: Tensor) -> torch.memory_format:
    """Return the layout in which cuDNN convolves: channels last if either is (native/ConvUtils.h)."""
    formats = {suggest_memory_format(data), suggest_memory_format(weight)}
    is_double = torch.float64 in {data.dtype, weight.dtype}
    last = next((each for each in formats if each is not torch.contiguous_format), None)
    return torch.contiguous_format if last is None or is_double or weight.dim() < 4 else last


def _expect_one_dtype(one: Tensor, other: Tensor, words: str) -> None:
    if one.dtype is not other.dtype:
        raise RuntimeError(words.format(dtype_name(one), dtype_name(other)))


def _of_one_dtype(func: Any, place: int, words: str) -> None:
    """Refuse operands at a place and after it that have two dtypes."""

    def run(*args: Any, **kwargs: Any) -> Any:
        one, other = args[place : place + 2]
        _expect_one_dtype(one, other, words)
        return func(*args, **kwargs)

    shape_of(func, why="without numbers it takes two dtypes")(run)


for _func, _place in ((aten.mm, 0), (aten.addmm, 1), (aten.mv, 0)):
    _of_one_dtype(_func.default, _place, "mat1 and mat2 must have the same dtype, but got {} and {}")
for _func in (aten._cdist_forward, aten.grid_sampler_2d, aten.grid_sampler_3d):
    _of_one_dtype(_func.default, 0, "expected scalar type {} but found {}")


@shape_of(aten.convolution.default, why="it does not know the device, and writes rows in order")
def _convolution(data: Tensor, weight: Tensor, *args: Any) -> Tensor:
    words = "Input type (torch.cuda.{}Tensor) and weight type (torch.cuda.{}Tensor) should be the same"
    _expect_one_dtype(data, weight, words)
    result: Tensor = aten.convolution.default(data, weight, *args)
    is_batch = data.dim() == weight.dim()
    return torch.empty_like(result, memory_format=_format_of_cudnn(data, weight)) if is_batch else result


@shape_of(
    aten.native_layer_norm_backward.default,
    why="CUDA writes rows in order, whatever the gradient's (native/cuda/layer_norm_kernel.cu)",
)
def _layer_norm_backward(*args: Any) -> tuple[Tensor | None, ...]:
    first, *others = aten.native_layer_norm_backward.default(*args)
    return (
        None if first is None else torch.empty_like(first, memory_format=torch.contiguous_format),
        *others,
    )


@shape_of(aten.log_sigmoid_forward.default, why="CUDA keeps no buffer beside it (native/Activation.cpp)")
def _log_sigmoid(data: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(data), data.new_empty(0)


@shape_of(
    aten.col2im.default, why="its result keeps the room of what it is made from (native/cuda/Col2Im.cu)"
)
def _within(columns: Tensor, *args: Any) -> Tensor:
    shape = aten.col2im.default(columns, *args).shape
    return torch.empty_like(columns).resize_(shape)


def _reduced_in_place(op: Any) -> None:
    @shape_of(op, why="its mean keeps the room of all losses, which were computed there (native/Loss.cpp)")
    def shape(data: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        result: Tensor = op(data, target, *args, **kwargs)
        if result.dim():
            return result
        return aten.add.Tensor(data, target).to(result.dtype).resize_(())  # type: ignore[no-any-return]


for _op in (aten.mse_loss, aten.smooth_l1_loss, aten.binary_cross_entropy, aten.soft_margin_loss):
    _reduced_in_place(_op.default)


_ROW_BYTES = 16


@shape_of(
    aten._grouped_mm.default, why="its own wants bfloat16, CUDA takes any (native/cuda/GroupedBlas.cpp)"
)
def _grouped_product(
    left: Tensor,
    right: Tensor,
    offsets: Tensor | None = None,
    _: Any = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Multiply group by group; rows of the result begin at multiples of 16 bytes."""
    if left.dim() == 2 and right.dim() == 2 and offsets is not None:
        shape = [offsets.size(0), left.size(0), right.size(1)]
    elif left.dim() == 2 or right.dim() == 2:
        shape = [left.size(-2), right.size(-1)]
    else:
        shape = [left.size(0), left.size(1), right.size(-1)]
    aligned = _ROW_BYTES // left.element_size()
    row = -(-shape[-1] // aligned) * aligned
    strides = [*([shape[1] * row] if len(shape) == 3 else []), row, 1]
    return left.new_empty_strided(shape, strides, dtype=dtype or left.dtype)


# --- operators of which some operands are known: these decide the shape ---


def _as_places(mask: Any) -> list[Any]:
    """Turn a mask that is known into the indices of its truths, one for each dimension; leave all else."""
    is_mask = isinstance(mask, torch.Tensor) and mask.dtype in {torch.bool, torch.uint8}
    numbers = numbers_of(mask) if is_mask else None
    if is_mask and numbers is None and the_session().current.selects_all:
        numbers = torch.ones(mask.shape, device="cpu")
    return [mask] if numbers is None else list(numbers.nonzero().unbind(1))


@on(
    "partly_known",
    *(aten.index.Tensor, aten._unsafe_index.Tensor, aten.index_put.default, aten.index_put_.default),
    *(aten._index_put_impl_.default, aten._unsafe_index_put.default),
    why="a mask decides how much is indexed",
)
def _with_places(op: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Index by places where a mask that is known is the index."""
    data, indices, *rest = args
    return op, (data, [place for index in indices for place in _as_places(index)], *rest)


@on("partly_known", aten.masked_select.default, why="a mask decides how much is selected")
def _selected(op: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Make room for as many elements as a mask that is known selects."""
    data, mask = args
    numbers = numbers_of(mask)
    if numbers is None:
        return op, args
    shape = torch.broadcast_shapes(data.shape, mask.shape)  # type: ignore[no-untyped-call]
    return aten.new_empty.default, (data, [int(numbers.expand(shape).sum())])

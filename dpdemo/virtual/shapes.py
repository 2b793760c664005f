"""Operators that PyTorch cannot run without numbers although their shapes are known, or for other shapes.

`numberless.py` asks here first. Each entry takes the operator's arguments, without numbers, and returns what
the kernel for numbers would: no more and no less, since all of it is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Shape = Callable[..., Any]

aten = torch.ops.aten
SHAPES: dict[Any, Shape] = {}
REASONS: dict[Any, str] = {}


def shape_of(*ops: Any, why: str) -> Callable[[Shape], Shape]:
    """Register what `ops` return; `why` says what is wrong with PyTorch's own."""

    def register(function: Shape) -> Shape:
        for op in ops:
            SHAPES[op] = function
            REASONS[op] = why
        return function

    return register


@shape_of(aten._fused_sgd_.default, why="it has no kernel without numbers; it writes in place only")
def _in_place(*_: Any, **__: Any) -> None:
    """Change nothing: there is nothing to change."""


@shape_of(aten.multi_margin_loss_backward.default, why="it has no kernel without numbers")
def _like_second(_: Tensor, data: Tensor, *__: Any, **___: Any) -> Tensor:
    return torch.empty_like(data)


@shape_of(aten.native_batch_norm.default, why="in evaluation nothing is kept, by cuDNN and the CPU alike")
def _batch_norm(data: Tensor, *args: Any) -> tuple[Tensor, ...]:
    results: tuple[Tensor, ...] = aten.native_batch_norm.default(data, *args)
    is_training = args[4]
    if is_training:
        return results
    return results[0], data.new_empty(0), data.new_empty(0)


@shape_of(
    aten._transformer_encoder_layer_fwd.default, why="it has no kernel without numbers before torch 2.13"
)
def _like_first(data: Tensor, *_: Any, **__: Any) -> Tensor:
    return torch.empty_like(data)


@shape_of(aten._ctc_loss_backward.Tensor, why="it has no kernel without numbers")
def _like_scores(_: Tensor, log_probs: Tensor, *__: Any, **___: Any) -> Tensor:
    return torch.empty_like(log_probs)


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

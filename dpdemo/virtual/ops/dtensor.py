"""Attention of DTensors: a sharding rule for the CPU's kernel, as PyTorch has for CUDA's three.

C++ takes virtual GPUs for the CPU and picks the CPU's kernel, which DTensor cannot split by itself.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

_aten: Any = torch.ops.aten


@functools.cache
def register_attention() -> None:
    """Let batches and heads be split over the ranks, forwards and backwards (DTensor's `_matrix_ops.py`)."""
    from torch.distributed.tensor.experimental import register_sharding

    forward = _aten._scaled_dot_product_flash_attention_for_cpu.default
    backward = _aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    register_sharding(forward)(_split(num_outputs=2, num_inputs=3))
    register_sharding(backward)(_split(num_outputs=3, num_inputs=6))


def _split(num_outputs: int, num_inputs: int) -> Callable[..., Any]:
    """Return a rule: all tensors whole, or all split along heads, or along the batch."""
    from torch.distributed.tensor import Replicate, Shard

    def rule(*args: Any, **_: Any) -> list[tuple[list[Any], list[Any]]]:
        others = [None] * (len(args) - num_inputs)
        return [
            ([placement] * num_outputs, [*[placement] * num_inputs, *others])
            for placement in (Replicate(), Shard(1), Shard(0))
        ]

    return rule

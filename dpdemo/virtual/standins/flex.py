"""`flex_attention`: its user's functions are traced on the CPU.

PyTorch traces `score_mod` and its gradient with fake tensors where the query is. A backward pass over fake
tensors of a GPU needs C++'s threads for that GPU, which are not there. What is traced names no device, unless
the function itself does, so tensors on the CPU give the same graph.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
import torch._higher_order_ops.flex_attention
from torch.utils._pytree import tree_map_only

if TYPE_CHECKING:
    from collections.abc import Callable

# by name: the package has an operator of the same name
MODULE = sys.modules["torch._higher_order_ops.flex_attention"]
_create_graphs: Any = MODULE.create_fw_bw_graph


def create_graphs(score_mod: Callable[..., Any], *operands: Any) -> Any:
    """Stand in for `create_fw_bw_graph`."""
    return _create_graphs(score_mod, *tree_map_only(torch.Tensor, _on_the_cpu, operands))


def _on_the_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().requires_grad_(tensor.requires_grad)

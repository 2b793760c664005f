"""Tools that look at a program from outside: compilers, profilers, `flex_attention`, registrations."""

import functools
import sys
import warnings
from typing import Any

import torch
import torch._higher_order_ops.flex_attention
import torch.autograd.profiler
from torch.utils._pytree import tree_map_only

from dpdemo.virtual.applying import stands_in, wraps
from dpdemo.virtual.ops.mode import actions

_profiler: Any = torch.autograd.profiler
_supported: Any = _profiler._supported_activities
_library: Any = torch.library.Library
# by name: the package has an operator of the same name
_flex: Any = sys.modules["torch._higher_order_ops.flex_attention"]
_create_graphs: Any = _flex.create_fw_bw_graph


@stands_in(torch, "compile", why="its tracing does not see through a dispatch mode")
def _compile(model: Any = None, **options: Any) -> Any:
    """Compile nothing: return PyTorch's own wrapper around a model that runs as it is written."""
    if model is None:
        return functools.partial(_compile, **options)
    warnings.warn(
        "torch.compile: virtual GPUs compile nothing; the model runs as it is written",
        UserWarning,
        stacklevel=2,
    )
    if not isinstance(model, torch.nn.Module):
        return model
    from torch._dynamo.eval_frame import OptimizedModule

    return OptimizedModule(model, lambda function: function)  # type: ignore[arg-type]


@stands_in(_flex, "create_fw_bw_graph", why="it would trace on a GPU, for which C++ has no threads")
def _create_graphs_on_cpu(score_mod: Any, *operands: Any) -> Any:
    """Trace `score_mod` and its gradient on the CPU: the traced graph names no device."""
    return _create_graphs(
        score_mod,
        *tree_map_only(
            torch.Tensor, lambda each: each.detach().cpu().requires_grad_(each.requires_grad), operands
        ),
    )


@stands_in(torch.autograd, "_supported_activities", why="torch.profiler asks it too")
@stands_in(_profiler, "_supported_activities", why="without CUDA's activity it falls back on events of C++")
def _supported_activities() -> set[Any]:
    """Accept CUDA's activity in `torch.profiler`: it records the CPU's operators, since no kernels run."""
    return {*_supported(), torch.profiler.ProfilerActivity.CUDA}


@wraps(_library, "impl", "_destroy", why="an operator that got code for CUDA takes another way from then on")
def _forgetting_choices(original: Any) -> Any:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        finally:
            for key in [key for key, (func, _) in actions.items() if func.namespace == self.ns]:
                del actions[key]

    return call

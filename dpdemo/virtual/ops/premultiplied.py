"""The factor of a reduction by PREMUL_SUM, which operators do not show: noted where a program passes it."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.applying import wraps
from dpdemo.virtual.ops.nccl_arithmetic import PREMUL_SUM

if TYPE_CHECKING:
    from collections.abc import Callable

_Group: Any = torch._C._distributed_c10d.ProcessGroup
_ReduceOp: Any = torch._C._distributed_c10d.ReduceOp
_current = threading.local()
_REDUCING = (
    *("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_single"),
    *("_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced"),
)


def current_factor() -> float | torch.Tensor:
    """Return the factor of the reduction that this thread is about to run."""
    factor: float | torch.Tensor = getattr(_current, "factor", 1.0)
    return factor


@wraps(
    _Group, *(name for name in _REDUCING if hasattr(_Group, name)), why="operators hide PREMUL_SUM's factor"
)
def _noting_factor(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        for given in (*args, *kwargs.values()):
            reduction: Any = getattr(given, "reduceOp", given)
            if isinstance(reduction, _ReduceOp) and reduction.op == PREMUL_SUM:
                _current.factor = reduction.factor
                try:
                    return original(*args, **kwargs)
                finally:
                    del _current.factor
        return original(*args, **kwargs)

    return run

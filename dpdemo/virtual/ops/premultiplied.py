"""The factor of a reduction by PREMUL_SUM, which operators do not show: noted where a program passes it."""

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

from dpdemo.virtual.applying import wraps
from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.ops.nccl_arithmetic import PREMUL_SUM

_Group: Any = torch._C._distributed_c10d.ProcessGroup
_ReduceOp: Any = torch._C._distributed_c10d.ReduceOp
_current = threading.local()
_REDUCING = (
    *("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_single"),
    *("_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced"),
)


def current_factor() -> float | torch.Tensor:
    """Return the factor of the reduction that this thread is about to run."""
    factor: float | torch.Tensor | None = getattr(_current, "factor", None)
    if factor is None:
        raise UnsupportedOpError("ReduceOp.PREMUL_SUM: the call does not show its factor")
    return factor


def with_factor(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `run`, and note the factor among its arguments meanwhile."""
    for given in (*args, *kwargs.values()):
        reduction: Any = getattr(given, "reduceOp", given)
        # ReduceOp.SUM is a RedOpType, which passes for a ReduceOp and has no `op`
        if isinstance(reduction, _ReduceOp) and getattr(reduction, "op", None) == PREMUL_SUM:
            _current.factor = reduction.__getstate__()[1]  # an attribute is new in torch 2.13
            try:
                return run(*args, **kwargs)
            finally:
                del _current.factor
    return run(*args, **kwargs)


@wraps(_Group, *filter(_Group.__dict__.__contains__, _REDUCING), why="operators hide PREMUL_SUM's factor")
def _noting_factor(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        return with_factor(original, *args, **kwargs)

    return run

"""Functions that C++ composes from other operators, and that compare devices before they begin.

To C++ all tensors are on the CPU, so these checks are made here. `dispatch.py` checks the operators in them
like all others; these functions would get past that: they copy into `out=`, or read tensors one by one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.applying import wraps
from dpdemo.virtual.errors import two_devices
from dpdemo.virtual.labels import gpu_of, gpus_of, stamp_all
from dpdemo.virtual.state import the_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Call = Callable[..., Any]

_WHY = "C++ would compare its devices, which are all the CPU"
_LINALG = ("cond", "matrix_norm", "matrix_power", "matrix_rank", "norm", "pinv", "tensorinv", "tensorsolve")


@wraps(torch, "quantile", "nanquantile", "tensordot", "inner", why=_WHY)
@wraps(torch.Tensor, "quantile", "nanquantile", why=_WHY)
@wraps(torch.linalg, *_LINALG, why=_WHY)
@wraps(torch.special, "ndtr", why=_WHY)
@wraps(torch, "meshgrid", why=_WHY)
@wraps(torch.functional, "meshgrid", why=_WHY)
def _on_one_device(original: Call) -> Call:
    """Build a replacement that expects the tensors which C++ compares on the device of the first."""
    name = original.__name__

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        operands = [*(args or (kwargs.get("input", kwargs.get("A")),))]
        if isinstance(operands[0], (list, tuple)):
            operands = list(operands[0])
        compared = operands if name in ("meshgrid", "quantile", "nanquantile") else operands[:1]
        compared += [kwargs.get("q"), kwargs.get("out")]
        tensors = [each for each in compared if isinstance(each, torch.Tensor)]
        for other in tensors[1:]:
            if gpu_of(other) != gpu_of(tensors[0]):
                raise two_devices(tensors[0].device, other.device)
        return original(*args, **kwargs)

    return call


@wraps(torch._VF, "stft", why=_WHY)
@wraps(torch, "istft", why=_WHY)
def _beside_its_window(original: Call) -> Call:
    """Build a replacement that expects the window, the fifth argument, where the data is."""

    @functools.wraps(original)
    def call(data: Tensor, *args: Any, **kwargs: Any) -> Any:
        window = args[3] if len(args) > 3 else kwargs.get("window")
        if window is not None and gpu_of(window) != gpu_of(data):
            raise RuntimeError(  # native/SpectralOps.cpp
                f"{original.__name__} input and window must be on the same device but got self on "
                f"{data.device} and window on {window.device}"
            )
        return original(data, *args, **kwargs)

    return call


@wraps(torch.linalg, "cond", "matrix_rank", why="C++ may make its result from nothing, on the CPU")
def _where_input_is(original: Call) -> Call:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        operands = (*args, *[value for name, value in kwargs.items() if name != "out"])
        for home in gpus_of(operands) - {None}:
            stamp_all(result, the_session(), home)  # type: ignore[arg-type] # it is a GPU
        return result

    return call


@wraps(torch.linalg, "matrix_rank", why="under any dispatch mode it forgets to write into `out=`")
def _written_out(original: Call) -> Call:
    """`matrix_rank_impl` (native/LinearAlgebra.cpp) ends in a sum, which it takes for a new tensor there."""

    @functools.wraps(original)
    def call(*args: Any, out: Tensor | None = None, **kwargs: Any) -> Any:
        if out is None:
            return original(*args, **kwargs)
        original(*args, out=out, **kwargs)  # for its checks, and the shape
        return torch.sum(original(*args, **kwargs).unsqueeze(0), 0, out=out)

    return call

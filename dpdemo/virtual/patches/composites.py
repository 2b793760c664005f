"""Functions that C++ composes from other operators, and that compare devices before they begin.

To C++ all tensors are on the CPU, so these checks are made here, in its words. The operators in them are
checked in `dispatch.py` like all others; the functions here would get past that: they copy into `out=`, or
read their tensors one by one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.applying import wraps
from dpdemo.virtual.labels import gpu_of, gpus_of, stamp_all
from dpdemo.virtual.state import the_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Check = Callable[[tuple[Any, ...], dict[str, Any]], str | None]


def _apart(one: Any, other: Any) -> bool:
    both = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    return both and gpu_of(one) != gpu_of(other)


def _out_beside_input(words: str) -> Check:
    """Build the check that `out=` is where the first operand is; `words` are PyTorch's."""

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        data: Any = args[0] if args else kwargs.get("input", kwargs.get("A"))
        out: Any = kwargs.get("out")
        return words.format(data=data.device, out=out.device) if _apart(data, out) else None

    return check


_LINALG_WORDS = (  # `checkSameDevice` (native/LinearAlgebraUtils.h)
    "linalg_{name}: Expected result and input tensors to be on the same device, "
    "but got result on {{out}} and input on {{data}}"
)
_NDTR_WORDS = (  # `special_ndtr_out` (native/UnaryOps.cpp)
    "Expected all tensors to be on the same device but got self on device {data} and result on device {out}"
)
_TENSORDOT_WORDS = (  # `tensordot_out` (native/Linear.cpp)
    "tensordot: Expected the output and input tensors to be on the same device, but got the output tensor on "
    "{out}, input tensor a on {data}"
)
_INNER_WORDS = (  # `checkDeviceType` (ATen/TensorUtils.cpp)
    "Expected tensor to be on {data}, but got tensor on {out} (while checking arguments for inner())"
)


def _quantile(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """`quantile_checks` (native/Sorting.cpp)."""
    given = {"q": args[1] if len(args) > 1 else kwargs.get("q"), "out": kwargs.get("out")}
    strays = [name for name, other in given.items() if args and _apart(args[0], other)]
    return f"quantile() {strays[0]} tensor must be on the same device as the input tensor" if strays else None


def _meshgrid(args: tuple[Any, ...], _: dict[str, Any]) -> str | None:
    """`meshgrid` (native/TensorShape.cpp)."""
    tensors = args[0] if args and isinstance(args[0], (list, tuple)) else args
    stray = any(_apart(tensors[0], other) for other in tensors)
    return "meshgrid expects all tensors to have the same device" if stray else None


_LINALG = ("cond", "matrix_norm", "matrix_power", "matrix_rank", "norm", "pinv", "tensorinv", "tensorsolve")
_CHECKS: tuple[tuple[Any, str, Check], ...] = (
    *((torch.linalg, name, _out_beside_input(_LINALG_WORDS.format(name=name))) for name in _LINALG),
    (torch, "quantile", _quantile),
    (torch, "nanquantile", _quantile),
    (torch.Tensor, "quantile", _quantile),
    (torch.Tensor, "nanquantile", _quantile),
    (torch.special, "ndtr", _out_beside_input(_NDTR_WORDS)),
    (torch, "tensordot", _out_beside_input(_TENSORDOT_WORDS)),
    (torch, "inner", _out_beside_input(_INNER_WORDS)),
    (torch, "meshgrid", _meshgrid),
    (torch.functional, "meshgrid", _meshgrid),
)


@wraps(torch.linalg, "cond", "matrix_rank", why="C++ may make its result from nothing, on the CPU")
def _where_input_is(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        operands = (*args, *[value for name, value in kwargs.items() if name != "out"])
        for home in gpus_of(operands) - {None}:
            stamp_all(result, the_session(), home)  # type: ignore[arg-type] # it is a GPU
        return result

    return call


@wraps(torch.linalg, "matrix_rank", why="under any dispatch mode it forgets to write into `out=`")
def _written_out(original: Callable[..., Any]) -> Callable[..., Any]:
    """`matrix_rank_impl` (native/LinearAlgebra.cpp) ends in a sum, which it takes for a new tensor there."""

    @functools.wraps(original)
    def call(*args: Any, out: Tensor | None = None, **kwargs: Any) -> Any:
        if out is None:
            return original(*args, **kwargs)
        original(*args, out=out, **kwargs)  # for its checks, and the shape
        return torch.sum(original(*args, **kwargs).unsqueeze(0), 0, out=out)

    return call


def _checked(check: Check) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what builds a replacement that makes the check which C++ cannot make."""

    def build(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            message = check(args, kwargs)
            if message is not None:
                raise RuntimeError(message)
            return original(*args, **kwargs)

        return call

    return build


for _owner, _name, _check in _CHECKS:
    wraps(_owner, _name, why="C++ would compare its own devices, which are all the CPU")(_checked(_check))

"""Functions that C++ composes from other operators, and that compare devices before they begin.

To C++ all tensors are on the CPU, so these checks are made here, in its words. The operators in them are
checked in `dispatch.py` like all others; the functions here would get past that: they copy into `out=`, or
read their tensors one by one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.standins.factories import LIKE_INPUT, like_input
from dpdemo.virtual.transfer import device_index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    Check = Callable[[tuple[Any, ...], dict[str, Any]], str | None]
    Words = Callable[[Tensor, Tensor, tuple[Any, ...]], str]


def _apart(one: Any, other: Any) -> bool:
    both = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    return both and device_index(one) != device_index(other)


def _beside_input(words: Words) -> Check:
    """Build the check that `out=` is where the first operand is."""

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        data: Any = args[0] if args else kwargs.get("input", kwargs.get("A"))
        out: Any = kwargs.get("out")
        return words(out, data, args) if _apart(data, out) else None

    return check


def _linalg(name: str) -> Check:
    """`checkSameDevice` (native/LinearAlgebraUtils.h)."""
    return _beside_input(
        lambda out, data, _: (
            f"linalg_{name}: Expected result and input tensors to be on the same device, "
            f"but got result on {out.device} and input on {data.device}"
        )
    )


# `special_ndtr_out` (native/UnaryOps.cpp)
_ndtr = _beside_input(
    lambda out, data, _: (
        f"Expected all tensors to be on the same device but got self on device {data.device} "
        f"and result on device {out.device}"
    )
)
# `tensordot_out` (native/Linear.cpp)
_tensordot = _beside_input(
    lambda out, data, args: (
        "tensordot: Expected the output and input tensors to be on the same device, but got the output "
        f"tensor on {out.device}, input tensor a on {data.device}, and input tensor b on {args[1].device}"
    )
)
# `checkDeviceType` (ATen/TensorUtils.cpp), of `inner_out`
_inner = _beside_input(
    lambda out, data, _: (
        f"Expected tensor to have {data.device.type} DeviceType, but got tensor with {out.device.type} "
        "DeviceType (while checking arguments for inner())"
    )
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
    *((torch.linalg, name, _linalg(name)) for name in _LINALG),
    (torch, "quantile", _quantile),
    (torch, "nanquantile", _quantile),
    (torch.Tensor, "quantile", _quantile),
    (torch.Tensor, "nanquantile", _quantile),
    (torch.special, "ndtr", _ndtr),
    (torch, "tensordot", _tensordot),
    (torch, "inner", _inner),
    (torch, "meshgrid", _meshgrid),
    (torch.functional, "meshgrid", _meshgrid),
)


@functools.cache
def checked(original: Callable[..., Any], check: Check) -> Callable[..., Any]:
    """Build a stand-in that makes the check which C++ cannot make."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        message = check(args, kwargs)
        if message is not None:
            raise RuntimeError(message)
        return original(*args, **kwargs)

    return call


@functools.cache
def written_out(original: Callable[..., Any]) -> Callable[..., Any]:
    """Build a stand-in for a function that under any dispatch mode forgets to write into `out=`.

    `matrix_rank_impl` (native/LinearAlgebra.cpp) ends in a sum, which it takes for a new tensor there.
    """

    @functools.wraps(original)
    def call(*args: Any, out: Tensor | None = None, **kwargs: Any) -> Any:
        if out is None:
            return original(*args, **kwargs)
        original(*args, out=out, **kwargs)  # for its checks, and the shape
        return torch.sum(original(*args, **kwargs).unsqueeze(0), 0, out=out)

    return call


def stand_ins() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Yield owner, name and stand-in of each function that is checked."""
    for owner, name, check in _CHECKS:
        original = getattr(owner, name)
        if name in LIKE_INPUT:
            original = like_input(original)
        if name == "matrix_rank":
            original = written_out(original)
        yield owner, name, checked(original, check)

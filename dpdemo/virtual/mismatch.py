"""Operands on two devices: who may mix, and the error for those who may not.

On a GPU a CPU tensor may join an operator only if it has no dimensions. Here there is one more kind of CPU
tensor: those that C++ made inside a composite operator ("an empty tensor like self", "the list of indices as
a tensor"). On a real GPU they would be made there; here C++ takes `self` for a CPU tensor and makes them on
the CPU. They must be let through, and a user's own CPU tensor must not.

What tells them apart: no Python variable ever held the first kind. Its Python object was made for this very
call, so nothing but the call's arguments refers to it, and its reference count is the smallest there can be.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dpdemo.virtual.errors import convolution_types, stray_argument, two_devices
from dpdemo.virtual.labels import label_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpdemo.virtual.state import Session


# "Structured" kernels have no overload name in `wrapper_CUDA_...` (native_functions.yaml); these meet users
# most.
_STRUCTURED = frozenset(
    {
        "addmm",
        "addmv",
        "baddbmm",
        "bmm",
        "cat",
        "gather",
        "index_add",
        "mm",
        "nll_loss_forward",
        "scatter",
        "topk",
    }
)


def operands_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every tensor operand with its argument's name."""
    named = [(spec.name, arg) for spec, arg in zip(func._schema.arguments, args, strict=False)]
    for name, arg in (*named, *kwargs.items()):
        for operand in arg if isinstance(arg, (list, tuple)) else (arg,):
            if isinstance(operand, torch.Tensor):
                yield name, operand


def _is_stand_in(session: Session, operand: torch.Tensor) -> bool:
    """Tell whether an operand has no data by design, as the notes of jagged nested tensors have none."""
    return operand.is_meta and not session.is_meta


def device_clash(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RuntimeError:
    """Build the error for operands on two devices, in the words of the kind of kernel that `func` has."""
    if func is torch.ops.aten.convolution.default and args[0].type() != args[1].type():
        return convolution_types(args[0].type(), args[1].type())
    first: torch.device | None = None
    for name, operand in operands_of(func, args, kwargs):
        label = label_of(operand, session.key)
        if label is None and (operand.dim() == 0 or _is_stand_in(session, operand)):
            continue
        device = session.devices[label.index] if label else operand.device
        if first is None:
            first = device
        elif first != device:
            return _clash_of(func, name, device, first)
    message = f"{func}: operands on two devices were expected"
    raise AssertionError(message)


def _clash_of(func: Any, name: str, device: torch.device, first: torch.device) -> RuntimeError:
    if torch.Tag.pointwise in func.tags:
        return two_devices(first, device)
    op = func._schema.name.removeprefix("aten::")
    if op == "embedding":  # on CUDA it is an index_select
        op, name = "index_select", {"indices": "index"}.get(name, name)
    overload = func._overloadname.replace("default", "")
    separator = "" if op in _STRUCTURED else f"_{overload}"
    return stray_argument(name, device, first, f"wrapper_CUDA{separator}_{op}")


def reference_counts(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[bool, int]]:
    """Return, for each tensor operand in order, whether it stands in a list, and its reference count."""
    counts = []
    for arg in (*args, *kwargs.values()):
        if isinstance(arg, torch.Tensor):
            counts.append((False, sys.getrefcount(arg)))
        elif isinstance(arg, (list, tuple)):
            counts.extend([(True, sys.getrefcount(item)) for item in arg if isinstance(item, torch.Tensor)])
    return counts


class _Probe(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the reference counts of the operands of `lift_fresh` and `index`, which C++ makes from a list."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.least: dict[bool, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for in_list, count in reference_counts(args, kwargs or {}):
            self.least[in_list] = min(count, self.least.get(in_list, count))
        return func(*args, **(kwargs or {}))


@functools.cache
def _least_references() -> dict[bool, int]:
    """Measure the reference counts of tensors that only C++ holds; they depend on Python and on PyTorch."""
    row = torch.zeros(2)
    probe = _Probe()
    with probe:
        row[[0, 1]]
    return probe.least


def made_by_cpp(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[bool]:
    """Tell, for each tensor operand in order, whether no Python variable ever held it."""
    least = _least_references()
    return [count <= least[in_list] for in_list, count in reference_counts(args, kwargs)]


def check_strangers(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Let CPU operands of an operator on a GPU through if they may mix.

    Raises:
        RuntimeError: a user's CPU tensor with dimensions is among them, or a CPU tensor would be written.

    """
    from_cpp = made_by_cpp(args, kwargs)
    written = {spec.name for spec in func._schema.arguments if spec.is_write}
    for known_to_cpp_only, (name, operand) in zip(from_cpp, operands_of(func, args, kwargs), strict=True):
        if label_of(operand, session.key) is not None:
            continue
        if operand.dim() == 0 and name in written:
            raise two_devices(_some_gpu(session, func, args, kwargs), operand.device)
        if _is_stand_in(session, operand) and torch.Tag.pointwise not in func.tags:
            continue
        if operand.dim() and not known_to_cpp_only:
            raise device_clash(session, func, args, kwargs)


def _some_gpu(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    labels = (label_of(operand, session.key) for _, operand in operands_of(func, args, kwargs))
    return next(session.devices[label.index] for label in labels if label is not None)

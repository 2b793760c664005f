"""Operands on two devices: who may mix, and the error for those who may not.

On a GPU a CPU tensor may join an operator only if it has no dimensions. Here there is one more kind of CPU
tensor that may: those that C++ made on its own (see `provenance.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.errors import stray_argument, two_devices
from dpdemo.virtual.labels import label_of
from dpdemo.virtual.ops.clashes import WORDS
from dpdemo.virtual.ops.cuda_kernels import PLAIN, STRUCTURED
from dpdemo.virtual.ops.provenance import made_by_cpp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpdemo.virtual.ops.clashes import Operand
    from dpdemo.virtual.state import Session

_aten: Any = torch.ops.aten
# What CUDA's build calls in their place, and the names that its arguments have there.
_AS_ON_CUDA: dict[Any, tuple[Any, dict[str, str]]] = {
    _aten.embedding.default: (_aten.index_select.default, {"indices": "index", "weight": "self"}),
    _aten.stack.default: (_aten.cat.default, {}),
}


def operands_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield every tensor operand with its argument's name."""
    named = [(spec.name, arg) for spec, arg in zip(func._schema.arguments, args, strict=False)]
    for name, arg in (*named, *kwargs.items()):
        for operand in arg if isinstance(arg, (list, tuple)) else (arg,):
            if isinstance(operand, torch.Tensor):
                yield name, operand


def _is_stand_in(session: Session, operand: torch.Tensor) -> bool:
    """Return whether an operand has no data by design, as the notes of jagged nested tensors have none."""
    return operand.is_meta and not session.is_meta


def device_clash(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RuntimeError:
    """Build the error for operands on two devices, in the words of the kind of kernel that `func` has."""
    found = [
        (name, _device_of(session, operand), operand)
        for name, operand in operands_of(func, args, kwargs)
        if not _is_stand_in(session, operand)
    ]
    in_its_own_words = WORDS.get(func)
    message = in_its_own_words(found) if in_its_own_words else None
    if message is not None:
        return message
    func, names = _AS_ON_CUDA.get(func, (func, {}))
    if _compares_all(func):
        return _kernel_clash(func, [(names.get(name, name), *rest) for name, *rest in found])
    return _elementwise_clash(found)  # most of what has no kernel of its own is made of such operators


def _device_of(session: Session, operand: torch.Tensor) -> torch.device:
    label = label_of(operand, session.key)
    return session.devices[label.index] if label else operand.device


def _elementwise_clash(found: list[Operand]) -> RuntimeError:
    """Say it as TensorIterator does: the first GPU, and the first that is elsewhere."""
    common = next(device for _, device, _ in found if device.type == "cuda")
    joining = (device for _, device, operand in found if operand.dim() or device.type == "cuda")
    return two_devices(common, next(device for device in joining if device != common))


def _kernel_clash(func: Any, found: list[Operand]) -> RuntimeError:
    """Say it as the check does that comes before a kernel: what differs from the first; `out=` is first."""
    written = {spec.name for spec in func._schema.arguments if spec.is_write and spec.kwarg_only}
    found = sorted(found, key=lambda one: one[0] not in written)
    first = found[0][1]
    name, device = next((name, device) for name, device, _ in found if device != first)
    return stray_argument(name, device, first, _wrapper_name(func))


def _wrapper_name(func: Any) -> str:
    """Return what the kernel of `func` is called (torchgen, dest/register_dispatch_key.py)."""
    op = func._schema.name.removeprefix("aten::")
    overload = func._overloadname.replace("default", "")
    if any(spec.is_write and spec.kwarg_only for spec in func._schema.arguments):
        op += "_out"
    if name_of(func) in STRUCTURED:
        return f"wrapper_CUDA_{op}{overload and '_' + overload}"
    return f"wrapper_CUDA_{overload}_{op}"


def name_of(func: Any) -> str:
    """Return an operator's name as native_functions.yaml writes it."""
    return str(func).removeprefix("aten.").removesuffix(".default")


def takes_numbers(func: Any) -> bool:
    """Return whether any tensor on the CPU without dimensions may join `func`, which writes into none."""
    return torch.Tag.pointwise in func.tags and not func._schema.is_mutable and not _compares_all(func)


def _compares_all(func: Any) -> bool:
    name = name_of(_AS_ON_CUDA.get(func, (func,))[0])
    return name in STRUCTURED or name in PLAIN


def check_cpu_operands(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Let CPU operands of an operator on a GPU through if they may mix.

    Raises:
        RuntimeError: a user's CPU tensor with dimensions is among them, or a CPU tensor would be written.

    """
    from_cpp = made_by_cpp(session, args, kwargs)
    written = {spec.name for spec in func._schema.arguments if spec.is_write}
    compares_all = _compares_all(func)
    for known_to_cpp_only, (name, operand) in zip(from_cpp, operands_of(func, args, kwargs), strict=True):
        if label_of(operand, session.key) is not None:
            continue
        if operand.dim() == 0 and name in written:
            raise two_devices(_some_gpu(session, func, args, kwargs), operand.device)
        if _is_stand_in(session, operand) and torch.Tag.pointwise not in func.tags:
            continue
        if (operand.dim() or compares_all) and not known_to_cpp_only:
            raise device_clash(session, func, args, kwargs)


def _some_gpu(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    labels = (label_of(operand, session.key) for _, operand in operands_of(func, args, kwargs))
    return next(session.devices[label.index] for label in labels if label is not None)

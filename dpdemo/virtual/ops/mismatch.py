"""Operands on two devices: the error, in the words of the CUDA kernel that would raise it.

`cuda_kernels.txt` lists the kernels that compare the devices of all operands before they run: an operator's
overload follows a dot, and structured and plain kernels name themselves in two ways. All others leave the
comparison to TensorIterator, or have words of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.errors import convolution_types, two_devices
from dpdemo.virtual.labels import label_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpdemo.virtual.state import Session

    Operand = tuple[str, torch.device, torch.Tensor]

_aten: Any = torch.ops.aten
_TEXT = Path(__file__).with_name("cuda_kernels.txt").read_text(encoding="utf-8").partition("STRUCTURED")[2]
STRUCTURED, PLAIN = (frozenset(names.split()) for names in _TEXT.split("PLAIN"))
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


def is_without_data(session: Session, operand: torch.Tensor) -> bool:
    """Return whether an operand has no data by design, as the notes of jagged nested tensors have none."""
    return operand.is_meta and not session.is_meta


def device_clash(session: Session, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RuntimeError:
    """Build the error for operands on two devices, in the words of the kind of kernel that `func` has."""
    found = []
    for name, operand in operands_of(func, args, kwargs):
        label = label_of(operand, session.key)
        if not is_without_data(session, operand):
            found.append((name, session.devices[label.index] if label else operand.device, operand))
    error = _in_its_own_words(func, found)
    if error is not None:
        return error
    func, names = _AS_ON_CUDA.get(func, (func, {}))
    if compares_all(func):
        return _kernel_clash(func, [(names.get(name, name), *rest) for name, *rest in found])
    return _elementwise_clash(found)  # most of what has no kernel of its own is made of such operators


def _in_its_own_words(func: Any, found: list[Operand]) -> RuntimeError | None:
    """Build the error of an operator that checks for itself, or return None."""
    (_, home, data), *others = found
    name = func._schema.name
    if func is _aten.convolution.default:  # it compares types first (native/Convolution.cpp)
        for kind, device, other in others:
            if device != home and (device.type, home.type) != ("cuda", "cuda"):
                return convolution_types(data.type(), kind, other.type(), or_mkldnn=home.type == "cpu")
        if others[0][1] != home:  # a bias is added afterwards
            return _kernel_clash(_aten.cudnn_convolution.default, [("self", home, data), others[0]])
    elif name in {"aten::masked_fill", "aten::masked_fill_"}:  # native/cuda/Indexing.cu
        mask = next(device for kind, device, _ in found if kind == "mask")
        if mask != home:
            return RuntimeError(
                f"expected self and mask to be on the same device, but got mask on {mask} and self on {home}"
            )
    elif name in {"aten::grid_sampler_2d", "aten::grid_sampler_3d"}:  # native/GridSamplerUtils.h
        return RuntimeError(
            "grid_sampler(): expected input and grid to be on same device, "
            f"but input is on {home} and grid is on {others[0][1]}"
        )
    return None


def _elementwise_clash(found: list[Operand]) -> RuntimeError:
    """Build TensorIterator's error, with the first GPU and the first device that differs from it."""
    common = next(device for _, device, _ in found if device.type == "cuda")
    joining = (device for _, device, operand in found if operand.dim() or device.type == "cuda")
    return two_devices(common, next(device for device in joining if device != common))


def _kernel_clash(func: Any, found: list[Operand]) -> RuntimeError:
    """Build the error of the check before a kernel, which compares all with the first; `out=` is first."""
    written = {spec.name for spec in func._schema.arguments if spec.is_write and spec.kwarg_only}
    found = sorted(found, key=lambda operand: operand[0] not in written)
    first = found[0][1]
    name, device = next((name, device) for name, device, _ in found if device != first)
    # the kernel's name (torchgen, dest/register_dispatch_key.py)
    op = func._schema.name.removeprefix("aten::") + ("_out" if written else "")
    overload = func._overloadname.replace("default", "")
    parts = [op, overload] if name_of(func) in STRUCTURED else [overload, op]
    if parts[0] is op and not overload:
        parts = [op]
    return RuntimeError(  # ATen/core/op_registration/adaption.cpp
        f"Expected all tensors to be on the same device, but got {name} is on {device}, different from other "
        f"tensors on {first} (when checking argument in method wrapper_CUDA_{'_'.join(parts)})"
    )


def name_of(func: Any) -> str:
    """Return an operator's name as native_functions.yaml writes it."""
    return str(func).removeprefix("aten.").removesuffix(".default")


def compares_all(func: Any) -> bool:
    """Return whether CUDA's kernel compares the devices of all operands, also of those without dimensions."""
    name = name_of(_AS_ON_CUDA.get(func, (func,))[0])
    return name in STRUCTURED or name in PLAIN

"""Functions that make tensors or compute with them, where what C++ does on the CPU is not what CUDA does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.utils._device

from dpdemo.virtual.ops import attention, ctc, cuda_only, dropout, norms, recurrent
from dpdemo.virtual.patches.applying import Patch, group
from dpdemo.virtual.standins import composites, devices, factories, generators

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_C: Any = torch._C
_NUMBERS = "C++ refuses a bare number as device in a CPU build"
_COPYING = "they copy data in with dispatch turned off"


def making() -> list[Patch]:
    """Replace the functions that make tensors."""
    context = torch.utils._device.DeviceContext
    # It keeps what it finds at its first call: that must be PyTorch's own.
    torch.utils._device._device_constructors()
    names = (*factories.PLAIN, *factories.COPYING, "as_tensor")
    replaced = {getattr(torch, name): name for name in names}
    return [
        *_each(torch, _NUMBERS, factories.plain, factories.PLAIN),
        *_each(torch, _COPYING, factories.copying, factories.COPYING),
        *_each(torch, _COPYING, factories.as_tensor, ["as_tensor"]),
        *_each(torch.nested, _COPYING, factories.copying, ["nested_tensor"]),
        *_each(torch.fft, _NUMBERS, factories.plain, factories.FFT),
        *group(
            context,
            "it calls the functions above by themselves",
            __torch_function__=factories.device_context(context.__torch_function__, replaced),
        ),
    ]


def computing() -> list[Patch]:
    """Replace functions that are another kernel on CUDA, or that compare devices in C++."""
    fused = "one kernel on CUDA, which keeps less than the CPU's operators"
    attend = {"scaled_dot_product_attention": attention.attention}
    recurrences = {name: recurrent.fused(name, getattr(torch._VF, name)) for name in recurrent.NAMES}
    cells = {name: recurrent.cell(name, getattr(torch, name)) for name in recurrent.CELLS}
    compares = "C++ would compare its own devices, which are all the CPU"
    return [
        *group(torch._VF, f"{fused}; and a check of devices that stands in C++", **recurrences),
        *[patch for owner in (torch._VF, torch) for patch in group(owner, f"{fused}, with words", **cells)],
        *group(torch.nn.functional, fused, **attend),
        *group(_C._nn, fused, **attend),
        *group(torch._VF, "its mask is smaller on CUDA", dropout=dropout.dropout),
        *group(torch, "its mask is smaller on CUDA", dropout=dropout.dropout),
        *group(torch, "it divides by lengths that may be on the CPU", ctc_loss=ctc.ctc_loss),
        *group(torch, fused, rms_norm=norms.rms_norm),
        *_each(torch.fft, "C++ knows half precision on CUDA only", cuda_only.half_fft, cuda_only.TRANSFORMS),
        *[Patch(owner, name, call, compares) for owner, name, call in composites.stand_ins()],
    ]


def naming_devices() -> list[Patch]:
    """Replace the classes to which a device is given."""
    numbers = [] if devices.understands_numbers() else group(torch, _NUMBERS, device=devices.DeviceName)
    return [
        *numbers,
        *group(torch, "C++ has generators for the CPU only", Generator=generators.GeneratorName),
    ]


def _each(owner: Any, why: str, make: Callable[[Any], Any], names: Iterable[str]) -> list[Patch]:
    """Replace each of `names` by what `make` builds around it."""
    return [Patch(owner, name, make(getattr(owner, name)), why) for name in names]

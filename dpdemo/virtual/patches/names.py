"""`torch.device(0)` on a build without CUDA: a bare number means that GPU.

C++ knows no accelerator in such a build and refuses the number; PyTorch's own `Scatter` relies on it. So the
name `torch.device` is another class there, which makes devices and knows them, and which pickle takes for the
real one.
"""

from __future__ import annotations

from typing import Any

import torch

from dpdemo.virtual.applying import Patch, group, of_session
from dpdemo.virtual.state import Session, as_device

_device: Any = torch.device


class _DeviceType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _device)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _device)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is _device

    def __hash__(cls) -> int:
        return hash(_device)

    def __call__(cls, *args: Any, **kwargs: Any) -> torch.device:
        if len(args) == 1 and not kwargs:
            args = (as_device(args[0]),)
        made: torch.device = _device(*args, **kwargs)
        return made


_DeviceName = _DeviceType("device", (), {"__module__": "torch", "__doc__": _device.__doc__})


@of_session
def _device_name(_: Session) -> list[Patch]:
    try:
        understands_numbers = _device(0).type == "cuda"
    except RuntimeError:
        understands_numbers = False
    why = "C++ refuses a bare number as device in a CPU build"
    return [] if understands_numbers else group(torch, why, device=_DeviceName)

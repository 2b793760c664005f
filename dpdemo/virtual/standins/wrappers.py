"""Classes of tensors with operators of their own (`__torch_dispatch__`): nested, masked, a user's.

Such a tensor has no data: it wraps others, and names a device when it is made. C++ would believe that, and
ask for a CUDA runtime. So to C++ it is on the CPU as all tensors here are, and carries the label itself. Its
class's operators work on what it wraps, and those pass through `dispatch.py` one by one.

Fake tensors (FakeTensorMode, `torch.export`, `make_fx`) do say "cuda" to C++, and must: it is what they are
for. C++ then asks for a guard that makes that GPU the current one; while the block is open that is the CPU's
guard, which does nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.labels import label_as_wrapper
from dpdemo.virtual.state import gpu_index, the_session

if TYPE_CHECKING:
    from collections.abc import Iterator

_make_wrapper: Any = torch.Tensor._make_wrapper_subclass
# What may follow the size by position (python_variable.cpp, THPVariable_make_wrapper_subclass)
_POSITIONS = ("strides", "storage_offset", "memory_format", "dtype", "layout", "device")
_CPU = torch.device("cpu")
_CPU_TYPE, _CUDA_TYPE = 0, 1  # c10/core/DeviceType.h
_GUARDS = "_ZN3c104impl26device_guard_impl_registryE"  # c10/core/impl/DeviceGuardImplInterface.h


def make_wrapper_subclass(cls: type, size: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Stand in for `Tensor._make_wrapper_subclass`."""
    given = {**dict(zip(_POSITIONS, args, strict=False)), **kwargs}
    device = given.get("device")
    index = None if device is None else gpu_index(torch.device(device))
    if index is None:
        made: torch.Tensor = _make_wrapper(cls, size, *args, **kwargs)
        return made
    before = _POSITIONS.index("device")
    args = (*args[:before], *([_CPU] if len(args) > before else []), *args[before + 1 :])
    if "device" in kwargs:
        kwargs["device"] = _CPU
    made = _make_wrapper(cls, size, *args, **kwargs)
    label_as_wrapper(made, the_session(), index)
    return made


def avoid_device_init(_: object) -> bool:
    """Stand in for `FakeTensorMode.avoid_device_init`: numbers that it knows stay on the CPU."""
    return True


def init_gpu_context(_: torch.device) -> None:
    """Stand in for what makes a context of CUDA before the first fake tensor of a GPU: there is none."""


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Give C++ a guard for CUDA devices that does nothing; without one the process would abort.

    A build for CUDA has one, which knows real GPUs only.
    """
    guards = _registry()
    if guards is None:
        torch._C._ensureCUDADeviceGuardSet()  # PyTorch's own way, where no real GPU is visible
        yield
        return
    before = guards[_CUDA_TYPE]
    guards[_CUDA_TYPE] = guards[_CPU_TYPE]
    try:
        yield
    finally:
        guards[_CUDA_TYPE] = before


@functools.cache
def _registry() -> Any:
    """Find C++'s list of guards; None where it has another name (Windows)."""
    for library in (Path(torch.__file__).parent / "lib").glob("libc10.*"):
        with contextlib.suppress(OSError, ValueError):
            return (ctypes.c_void_p * 2).in_dll(ctypes.CDLL(str(library)), _GUARDS)
    return None

"""Tensor classes that define operators (`__torch_dispatch__`): nested, masked, a user's.

Such a tensor has no data: it wraps others, and names a device when it is made. C++ would believe that, and
ask for a CUDA runtime. So to C++ it is on the CPU as all tensors here are, and carries the label itself. Its
class's operators work on what it wraps, and those pass through `dispatch.py` one by one.

Fake tensors (FakeTensorMode, `torch.export`, `make_fx`) do say "cuda" to C++, and must: it is what they are
for. C++ then asks for a guard that makes that GPU the current one; while the block is open that is the CPU's
guard, which does nothing.
"""

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from dpdemo.virtual.applying import replace, stands_in
from dpdemo.virtual.labels import label_as_wrapper
from dpdemo.virtual.state import gpu_index, the_session

_make_wrapper: Any = torch.Tensor._make_wrapper_subclass
# What may follow the size by position (python_variable.cpp, THPVariable_make_wrapper_subclass)
_POSITIONS = ("strides", "storage_offset", "memory_format", "dtype", "layout", "device")
_CPU = torch.device("cpu")
_CPU_TYPE, _CUDA_TYPE = 0, 1  # c10/core/DeviceType.h
# torch::utils::set_requires_device_init(c10::DeviceType, bool), exported from libtorch_python
_SET_LAZY = "_ZN5torch5utils24set_requires_device_initEN3c1010DeviceTypeEb"
_GUARDS = "_ZN3c104impl26device_guard_impl_registryE"  # c10/core/impl/DeviceGuardImplInterface.h


@stands_in(torch.Tensor, "_make_wrapper_subclass", why="C++ would ask for a CUDA runtime", form=staticmethod)
def _make_wrapper_subclass(cls: type, size: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
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


replace(
    FakeTensorMode,
    "it would compute numbers that it knows on the GPU itself, which C++ does not have",
    avoid_device_init=property(lambda _: True),
)
replace(
    fake_tensor,
    "PyTorch 2.11 would make a context of CUDA for each fake tensor",
    init_gpu_context=lambda _: None,
)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Register a guard for CUDA devices that does nothing; without a guard the process would abort.

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


def forget_initialisation() -> None:
    """Make C++ call `torch.cuda._lazy_init` again, as before the block.

    C++ notes in a static variable that it has called it (torch/csrc/utils/device_lazy_init.cpp); with that
    note `torch.zeros(1, device="cuda")` would fail with another message after the block than before it. Where
    the function is not exported, the note stays.
    """
    library = Path(torch.__file__).parent / "lib" / "libtorch_python.so"
    if library.exists():
        function = getattr(ctypes.CDLL(str(library)), _SET_LAZY, None)
        if function is not None:
            function.argtypes, function.restype = (ctypes.c_int8, ctypes.c_bool), None
            function(_CUDA_TYPE, True)

"""C++'s note that CUDA was initialised, taken back when a block closes.

The first `device="cuda"` makes C++ call `torch.cuda._lazy_init` and note in a static variable that this was
done (torch/csrc/utils/device_lazy_init.cpp). It is the only trace of a block that is not a Python attribute.
If it stayed, `torch.zeros(1, device="cuda")` would fail with another message after the block than before it.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

_CUDA = 1  # c10::DeviceType::CUDA
# torch::utils::set_requires_device_init(c10::DeviceType, bool), exported from libtorch_python
_SYMBOL = "_ZN5torch5utils24set_requires_device_initEN3c1010DeviceTypeEb"


def forget_initialisation() -> None:
    """Make C++ ask `torch.cuda._lazy_init` again; where the function is not exported, its note stays."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_python.so"
    if library.exists():
        function = getattr(ctypes.CDLL(str(library)), _SYMBOL, None)
        if function is not None:
            function.argtypes, function.restype = (ctypes.c_int8, ctypes.c_bool), None
            function(_CUDA, True)

"""Threads started inside a block see the virtual GPUs too.

PyTorch's dispatch modes are thread-local; so each new thread enters a `VirtualGpuMode` of its own before it
does anything else. Nothing else is handed on: a new thread starts on device 0, with gradients on and autocast
off, as with real GPUs.

A GPU's results do not depend on the thread that launches its kernels; a CPU's do. PyTorch gives a thread the
number of threads that `torch.set_num_threads` set once it first asks for it (`lazy_init_num_threads`,
aten/src/ATen/Parallel.h), and MKL, if called before, may take another kernel. So each thread asks at once.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from dpdemo.virtual import state
from dpdemo.virtual.ops.dispatch import VirtualGpuMode
from dpdemo.virtual.standins.legacy import heed_default_type

_bootstrap: Any = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]


def bootstrap(self: threading.Thread) -> None:
    """Stand in for `Thread._bootstrap_inner`, through which every thread starts, whatever its `run` is."""
    if state.session is None:
        _bootstrap(self)
        return
    state.session.current.inside = True
    torch.get_num_threads()  # and thereby takes it over
    with VirtualGpuMode(state.session):
        heed_default_type()
        _bootstrap(self)

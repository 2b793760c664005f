"""The one block of virtual GPUs that is open, and what each thread calls its current device.

`session` is None outside a block. It is a module attribute on purpose: the functions that stand in for
`torch._C` ones are reached from any thread and take no argument that could carry it.
"""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from dpdemo.virtual.errors import VirtualGpuError, foreign_thread, forked, invalid_ordinal

if TYPE_CHECKING:
    from torch import nn

    from dpdemo.virtual.casting import Autocast
    from dpdemo.virtual.ledger import Ledger


class CurrentDevice(threading.local):
    """The calling thread's current device; a new thread starts on device 0, as with the CUDA runtime."""

    index = 0
    keeps_graph = False  # whether the backward pass that runs may be run again (`retain_graph`)
    uncounted = False  # whether what is made here takes no bytes (see `fused.py`)
    is_beneath = False  # whether PyTorch's own Python kernels run, which take GPU tensors for what they are
    is_moving = False  # whether a module is between two devices, and its gradients not yet where it is
    inside = False  # whether a `VirtualGpuMode` was entered in this thread


@dataclass
class Session:
    """An open `virtual_gpus` block."""

    num_gpus: int
    key: str  # the attribute under which this block's storages carry their allocation
    ledger: Ledger
    is_meta: bool  # whether storages have sizes only, and no numbers
    devices: list[torch.device]
    generators: list[torch.Generator]
    autocast: Autocast
    current: CurrentDevice = field(default_factory=CurrentDevice)
    pid: int = field(default_factory=os.getpid)
    modules: weakref.WeakSet[nn.Module] = field(default_factory=weakref.WeakSet)  # those with parts on a GPU

    def check_ordinal(self, index: int) -> int:
        """Return `index` if such a GPU exists, else raise CUDA's error."""
        if not 0 <= index < self.num_gpus:
            raise invalid_ordinal()
        return index


session: Session | None = None


def the_session() -> Session:
    """Return the open block.

    Raises:
        VirtualGpuError: outside any block.

    """
    if session is None:
        raise VirtualGpuError("no virtual GPUs: this works only inside `with virtual_gpus(n):`")
    return session


def check_thread(here: Session) -> None:
    """Raise VirtualGpuError in a thread whose operators are not seen: their results would get no label.

    (C++'s own threads, which run nested backward passes, inherit the dispatch modes of the thread they work
    for.)
    """
    if not here.current.inside and not torch._C._len_torch_dispatch_stack():
        raise foreign_thread()


def gpu_index(device: torch.device) -> int | None:
    """Return the GPU that `device` means to the calling thread, or None for the CPU and other devices.

    Raises:
        torch.AcceleratorError: there is no such GPU.

    """
    if device.type != "cuda":
        return None
    here = the_session()
    if os.getpid() != here.pid:
        raise forked()
    check_thread(here)
    return here.current.index if device.index is None else here.check_ordinal(device.index)


# Taken before the name is replaced (see `devices.py`).
_device = torch.device


def as_device(device: object) -> object:
    """Read a bare number as that GPU, as PyTorch does where it is built with CUDA."""
    if isinstance(device, int) and not isinstance(device, bool):
        return _device("cuda", device)
    return device

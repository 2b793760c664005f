"""The one block of virtual GPUs that is open, and what each thread calls its current device.

`session` is None outside a block. It is a module attribute on purpose: the functions that stand in for
`torch._C` ones are reached from any thread and take no argument that could carry it.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.arithmetic.cards import VIRTUAL, Card
from dpdemo.virtual.errors import VirtualGpuError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn
    from torch.utils._python_dispatch import TorchDispatchMode

    from dpdemo.virtual.ledger import Ledger


_NO_HOST_MEMORY = re.compile(r"DefaultCPUAllocator: .*you tried to allocate (\d+) bytes")
_INVALID_ORDINAL = (  # cudaErrorInvalidDevice (c10/cuda/CUDAException.cpp)
    "CUDA error: invalid device ordinal\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below "
    "might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
_num_modes: Any = torch._C._len_torch_dispatch_stack
_mode_at: Any = torch._C._get_dispatch_stack_at


class CurrentDevice(threading.local):
    """The calling thread's current device; a new thread starts on device 0, as with the CUDA runtime."""

    index = 0
    keeps_graph = False  # whether the backward pass that runs may be run again (`retain_graph`)
    uncounted = False  # whether what is made here takes no bytes (see `fused.py`)
    sees_as_cpp = False  # whether PyTorch's own Python kernels run, which see tensors as C++ does
    is_moving = False  # whether a module is between two devices, and its gradients not yet where it is
    names_host = False  # whether "cpu" in a conversion means the host (a wrapper of tensors moves there)
    makes_buckets = False  # whether the reducer of DistributedDataParallel makes its buckets
    hides_meta = False  # whether a tensor of a GPU without numbers is no meta tensor (see `alone.py`)
    selects_all = False  # whether a mask without numbers is taken to hide nothing (see `alone.py`)
    inside = False  # whether a `VirtualGpuMode` was entered in this thread

    def __init__(self) -> None:
        self.streams: dict[int, int] = {}  # each GPU's current stream; without an entry it is the default one

    @contextlib.contextmanager
    def having(self, name: str, value: Any) -> Iterator[None]:
        """Give one of these facts another value for the length of a `with` block."""
        before = getattr(self, name)
        setattr(self, name, value)
        try:
            yield
        finally:
            setattr(self, name, before)


@dataclass
class Session:
    """An open `virtual_gpus` block."""

    num_gpus: int
    key: str  # the attribute under which this block's storages carry their allocation
    ledger: Ledger
    is_meta: bool  # whether storages have sizes only, and no numbers
    devices: list[torch.device]
    generators: list[torch.Generator]
    mode: Callable[[Session], TorchDispatchMode]  # a thread enters one; so does code made of operators
    finish_alone: Any = None  # ends a collective where the other ranks do not run (see `alone.py`)
    scratch_capability: int | None = None  # count cuDNN's scratch as on cards of this compute capability
    capacities: Sequence[int | None] = ()
    card: Card = VIRTUAL
    num_uncounted: int = 0  # how many threads make what takes no bytes (see `fused.py`)
    made_up: dict[str, bool | float] = field(
        default_factory=dict
    )  # answers to readers by place (`guards.py`)
    draws_as_cpu: bool = False  # whether random numbers are the CPU's, and not CUDA's
    current: CurrentDevice = field(default_factory=CurrentDevice)
    started_in: int | None = None  # the process that started CUDA's driver (see `visible.py`), if one has
    host_key: str = field(init=False)  # the same for storages of the host that are C++'s own
    settings: dict[str, Any] = field(default_factory=dict)  # settings of the program that change nothing here
    entered: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)  # what leaving takes back
    modules: weakref.WeakSet[nn.Module] = field(default_factory=weakref.WeakSet)  # those with parts on a GPU
    all_devices: list[torch.device] = field(init=False)  # with those that the program hid from itself
    visible: list[int] = field(init=False)  # which of them it sees, in its own order
    is_initialised: bool = False  # whether PyTorch has initialised CUDA
    set_visible: str | None = None  # what the program set the variable to, while it is put aside
    read_visible: str | None = None  # what the variable was when it was read

    def __post_init__(self) -> None:
        self.host_key = f"{self.key}_cpps"
        self.all_devices, self.visible = self.devices, list(range(self.num_gpus))
        self.ledger.stream_of = lambda index: self.current.streams.get(index, 0)

    def see_only(self, visible: list[int]) -> None:
        """Give the GPUs `visible` numbers from 0 on, and forget the others; nothing lies on any yet."""
        self.num_gpus, self.visible = len(visible), visible
        self.devices, self.generators = self.devices[: self.num_gpus], self.generators[: self.num_gpus]
        self.capacities = [self.capacities[index] for index in visible]
        self.ledger.see_only(visible)

    def is_in_bad_fork(self) -> bool:
        """Return whether this process was forked from one that had started CUDA: it cannot use CUDA then."""
        return self.started_in is not None and self.started_in != os.getpid()

    def total_bytes(self, index: int) -> int:
        """Return how much memory GPU `index` says it has."""
        limit = self.capacities[self.check_ordinal(index)]
        return self.card.memory_bytes if limit is None else limit

    def check_room(self, index: int, refusal: RuntimeError) -> None:
        """Raise CUDA's error in place of the host's own, where GPU `index` would have no room either."""
        found = _NO_HOST_MEMORY.search(str(refusal))
        total = self.total_bytes(index)
        if found is not None and self.ledger.live[index] + int(found[1]) > total:
            raise self.ledger.full(index, int(found[1]), total) from None

    def check_ordinal(self, index: int) -> int:
        """Return `index` if such a GPU exists, else raise CUDA's error."""
        if not 0 <= index < self.num_gpus:
            raise torch.AcceleratorError(_INVALID_ORDINAL)
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
        raise VirtualGpuError(
            "this thread was running before the block of virtual GPUs was opened, and does not see them; "
            "start it inside the block"
        )


def is_seen_by_us_alone(*, also_meta: bool = False) -> bool:
    """Return whether our mode alone, and no transform, looks here, and there are numbers, or need be none."""
    functorch: Any = torch._C._functorch
    return (
        _num_modes() == 1
        and getattr(_mode_at(0), "session", None) is session  # ours, not FakeTensorMode inside an operator
        and not torch._C._len_torch_function_stack()
        and functorch.peek_interpreter_stack() is None
        and (also_meta or not the_session().is_meta)
    )


def gpu_index(device: torch.device) -> int | None:
    """Return the GPU that `device` means to the calling thread, or None for the CPU and other devices.

    Raises:
        torch.AcceleratorError: there is no such GPU.

    """
    if device.type != "cuda":
        return None
    here = the_session()
    if here.is_in_bad_fork():
        raise RuntimeError(  # torch/cuda/__init__.py, `_lazy_init`
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use "
            "the 'spawn' start method"
        )
    check_thread(here)
    if not here.is_initialised:
        torch.cuda._lazy_init()  # type: ignore[no-untyped-call]
    return here.current.index if device.index is None else here.check_ordinal(device.index)


# Taken before the name is replaced (see `devices.py`).
_device = torch.device


def as_device(device: object) -> object:
    """Read a bare number as that GPU, as PyTorch does where it is built with CUDA."""
    if isinstance(device, int) and not isinstance(device, bool):
        return _device("cuda", device)
    return device

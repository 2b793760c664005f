"""The functions of `torch._C` behind `torch.cuda` and `torch.accelerator`; only CUDA builds have them.

With these in place the Python of `torch.cuda` and `torch.accelerator` is PyTorch's own. Each name is the one
in `torch._C`, less its prefix.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from dpdemo.virtual.standins import streams
from dpdemo.virtual.standins.properties import DeviceProperties, properties_of
from dpdemo.virtual.standins.visible import start_driver
from dpdemo.virtual.state import the_session


def get_device() -> int:
    """Return the calling thread's current GPU."""
    return the_session().current.index


def set_device(index: int) -> None:
    """Make GPU `index` the calling thread's current one; a negative index changes nothing."""
    if index >= 0:
        session = start_driver()
        session.current.index = session.check_ordinal(index)


def exchange_device(index: int) -> int:
    """Make GPU `index` the current one and return the one that was; -1 for a negative index."""
    if index < 0:
        return -1
    before = get_device()
    set_device(index)
    return before


def synchronize(index: int | None = None) -> None:
    """Wait for the GPU's work, which is done."""


def can_access_peer(device: int, peer: int) -> bool:
    """Return whether the two GPUs reach each other's memory: yes, as on one board."""
    return the_session().check_ordinal(device) != the_session().check_ordinal(peer)


def properties(index: int) -> DeviceProperties:
    """Return what `torch.cuda.get_device_properties` says of GPU `index`."""
    session = the_session()
    total = session.total_bytes(index)
    return properties_of(session.card, session.visible[index], total)


def memory_info(index: int | None = None) -> tuple[int, int]:
    """Return the free and the total bytes of GPU `index`."""
    session = the_session()
    index = session.current.index if index is None else session.check_ordinal(index)
    total = session.total_bytes(index)
    return max(0, total - session.ledger.live[index]), total


def empty_cache() -> None:
    """Give cached memory back; none is kept."""


def get_current_stream(index: int) -> tuple[int, int, int]:
    """Return `torch.cuda.Stream`'s ids of the current stream on GPU `index`."""
    stream = streams.current_stream(index if index >= 0 else None)
    return stream.stream_id, stream.device_index, stream.device_type


def get_raw_stream(index: int) -> int:
    """Return the handle of the current stream on GPU `index`."""
    return streams.current_stream(index).stream_id


def get_default_stream(index: int) -> tuple[int, int, int]:
    """Return `torch.cuda.Stream`'s ids of the default stream on GPU `index`."""
    stream = streams.default_stream(index if index >= 0 else None)
    return stream.stream_id, stream.device_index, stream.device_type


def set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    """Make the stream with these ids the current one."""
    streams.set_stream(
        streams.VirtualStream(stream_id=stream_id, device_index=device_index, device_type=device_type)
    )


def is_in_bad_fork() -> bool:
    """Return whether this process was forked from one that had started CUDA: it cannot use CUDA then."""
    return the_session().is_in_bad_fork()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Stand in for `torch.cuda.mem_get_info`, which asks the CUDA runtime itself."""
    torch.cuda._lazy_init()  # type: ignore[no-untyped-call]
    return memory_info(torch.cuda._utils._get_device_index(device, optional=True))


def accelerator(check: bool | None = None) -> torch.device:  # noqa: ARG001 - PyTorch's own
    """Return the kind of device that accelerates."""
    return torch.device("cuda")


def accelerator_capability(index: int) -> dict[str, Any]:
    """Return what `torch.accelerator.get_device_capability` says of GPU `index`."""
    the_session().check_ordinal(index)
    dtypes = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    return {"supported_dtypes": dtypes}


def accelerator_stream(index: int) -> streams.VirtualStream:
    """Return the current stream on GPU `index`."""
    return streams.current_stream(index if index >= 0 else None)


def no_device_flag() -> bool:
    """Return whether the allocator is ready: once CUDA is initialised."""
    return the_session().is_initialised


def not_capturing() -> bool:
    """Return whether a CUDA graph is being captured: never."""
    return False


def no_cudnn(tensor: Any) -> bool:  # noqa: ARG001
    """Return whether cuDNN takes this tensor: no, the CPU's kernels do."""
    return False


_MARKS = (
    *("rangePushA", "rangePop", "rangeStartA", "rangeEnd", "markA", "deviceRangeStart", "deviceRangeEnd"),
)


def markers() -> SimpleNamespace:
    """Stand in for `torch._C._nvtx`, with which programs mark ranges for NVIDIA's profiler."""

    def mark(*_: Any) -> int:
        return 0

    return SimpleNamespace(**dict.fromkeys(_MARKS, mark))

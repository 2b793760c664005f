"""Streams and events, which have nothing to order here: work is done when the call returns.

They keep what a program can ask of them (device, identity, the current stream of each thread, elapsed times),
so that programs written for streams run. They say nothing about races between streams: there are none to
show.
"""

import itertools
import sys
import time
from typing import Any, Self

import torch
import torch.nn.parallel

from dpdemo.virtual.applying import always, replace
from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.patches.cuda_devices import cuda_runtime
from dpdemo.virtual.state import as_device, gpu_index, the_session

_CUDA = 1  # c10::DeviceType::CUDA
_ids = itertools.count(1)


class VirtualStream:
    """A stream, as `torch.Stream` and `torch.cuda.Stream`."""

    __module__, __qualname__ = "torch.cuda.streams", "Stream"

    device_type = _CUDA

    def __init__(self, device: Any = None, priority: int = 0, **ids: Any) -> None:
        if (index := ids.get("device_index")) is None:
            device = torch.device("cuda" if device is None else as_device(device))  # type: ignore[call-overload]
            index = gpu_index(device)
        if index is None:
            raise ValueError(f"Expected a cuda device, but got: {device}")
        self.device_index: int = index
        self.stream_id: int = ids["stream_id"] if "stream_id" in ids else next(_ids)
        least, greatest = self.priority_range()
        self.priority = min(max(priority, greatest), least)
        self._left: list[tuple[int, int, int]] = []

    @property
    def device(self) -> torch.device:
        """The GPU that the stream belongs to."""
        return the_session().devices[self.device_index]

    cuda_stream = property(lambda self: self.stream_id)
    _as_parameter_ = native_handle = cuda_stream

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the least and the greatest priority, which are numbers down from 0."""
        return 0, -5

    query = always(True)
    is_capturing = always(False)
    synchronize = wait_stream = wait_event = always(None)  # work is done when its call returns

    def record_event(self, event: "VirtualEvent | None" = None) -> "VirtualEvent":
        """Record `event`, or a new one."""
        event = VirtualEvent() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Self:
        here = the_session().current
        self._left.append((here.index, self.device_index, here.streams.get(self.device_index, 0)))
        _set_stream(self)
        return self

    def __exit__(self, *_: object) -> None:
        index, device_index, stream_id = self._left.pop()
        here = the_session().current
        here.index = index
        here.streams[device_index] = stream_id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VirtualStream):
            return NotImplemented
        return (self.stream_id, self.device_index) == (other.stream_id, other.device_index)

    def __hash__(self) -> int:
        return hash((self.stream_id, self.device_index))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:{self.device_index} cuda_stream={self.stream_id:#x}>"


class VirtualEvent:
    """An event, as `torch.Event` and `torch.cuda.Event`; its times are wall-clock times of this process."""

    __module__, __qualname__ = "torch.cuda.streams", "Event"

    def __init__(self, device: Any = None, *, enable_timing: bool = False, **_: Any) -> None:
        self.device = None if device is None else torch.device(device)
        self.enable_timing = enable_timing
        self._time: float | None = None

    def record(self, stream: VirtualStream | None = None) -> None:
        """Note the time."""
        self.device = (stream or current_stream()).device
        self._time = time.perf_counter()

    query = always(True)
    wait = synchronize = always(None)

    def elapsed_time(self, end_event: "VirtualEvent") -> float:
        """Return the milliseconds from this event to `end_event`.

        Raises:
            ValueError: one of the two was made without `enable_timing=True`, or was not recorded.

        """
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._time is None or end_event._time is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._time - self._time) * 1000

    cuda_event = property(id)
    _as_parameter_ = event_id = cuda_event

    def ipc_handle(self, *_: Any) -> Any:
        """Refuse to hand the event to another process, or to take one."""
        raise UnsupportedOpError("torch.cuda.Event: each process has virtual GPUs of its own")

    from_ipc_handle: Any = ipc_handle

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {'uninitialized' if self._time is None else hex(id(self))}>"


@cuda_runtime("_accelerator_getStream")
def current_stream(index: int = -1) -> VirtualStream:
    """Return the calling thread's current stream on GPU `index` (the current GPU if negative)."""
    session = the_session()
    index = session.current.index if index < 0 else session.check_ordinal(index)
    return VirtualStream(stream_id=session.current.streams.get(index, 0), device_index=index)


@cuda_runtime("_cuda_getCurrentStream")
def _current_ids(index: int) -> tuple[int, int, int]:
    stream = current_stream(index)
    return stream.stream_id, stream.device_index, stream.device_type


@cuda_runtime("_cuda_getCurrentRawStream")
def _raw_stream(index: int) -> int:
    return current_stream(index).stream_id


@cuda_runtime("_cuda_getDefaultStream")
def _default_ids(index: int) -> tuple[int, int, int]:
    return 0, current_stream(index).device_index, _CUDA


@cuda_runtime("_accelerator_setStream")
def _set_stream(stream: VirtualStream) -> None:
    """Make `stream` the calling thread's current stream, and its GPU the current one."""
    here = the_session().current
    here.index = stream.device_index
    here.streams[stream.device_index] = stream.stream_id


@cuda_runtime("_cuda_setStream")
def _set_stream_by_ids(stream_id: int, device_index: int, **_: Any) -> None:
    _set_stream(VirtualStream(stream_id=stream_id, device_index=device_index))


VirtualStream.__name__, VirtualEvent.__name__ = "Stream", "Event"
for _owner in (torch, torch.cuda, torch.cuda.streams):
    replace(_owner, "streams that C++ defines", Stream=VirtualStream, Event=VirtualEvent)
replace(sys.modules["torch.nn.parallel._functions"], "it keeps a stream for each device", _streams=None)

"""Sends and receives as NCCL pairs them: by their order alone, whatever the tag, also from a rank to itself.

Where the counts or types differ, NCCL hangs or leaves part of a tensor as it was. Here a header goes ahead of
each send, and a thread of the receiving rank compares it before it takes the numbers: gloo itself would leave
the end of a larger tensor as it was, and abort the process for a smaller one.
"""

import collections
import functools
import queue
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from dpdemo.virtual.applying import wraps
from dpdemo.virtual.ops.collectives import Call
from dpdemo.virtual.ops.pending import ended_by, fail

_cpp: Any = torch._C._distributed_c10d
_HEADER, _NUMBERS = 2**30, 2**30 + 1
"""Tags of gloo's that no program uses."""
_PLACE_BYTES = 240
_LAYOUT = f"<q32s{_PLACE_BYTES}s"
_IDLE_S = 1.0
_CPU = torch.device("cpu")
_abandoned: list[Any] = []
"""Sends whose work the program dropped: gloo would take them back."""
_OURS = tuple(f"{Path(module.__file__ or '').parent}/" for module in (torch, sys.modules["dpdemo"]))


class _Sent(NamedTuple):
    """The parts of one send."""

    works: list[Any]
    tensors: list[torch.Tensor]


class _Sending:
    """Waits for a send, and keeps it alive if nobody waits."""

    def __init__(self, sent: _Sent) -> None:
        self.sent: _Sent | None = sent
        self.lock = threading.Lock()

    def __call__(self, timeout: Any) -> bool:
        """Wait for it; who asked for its future does so on a thread."""
        with self.lock:
            sent, self.sent = self.sent, None
            for work in sent.works if sent else ():
                work.wait(timeout)
        return True

    def __del__(self) -> None:
        if self.sent is not None:
            _abandoned.append(self.sent)


@wraps(_cpp.PythonCallbackWork, "get_future", why="the future of a send ends in `wait` alone")
def _ending(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get_future(self: Any) -> Any:
        future = original(self)
        if not future.done():
            threading._start_new_thread(self.wait, ())  # type: ignore[attr-defined] # it needs no GPUs
        return future

    return get_future


class _Receipt(NamedTuple):
    """A receive that waits for its send."""

    tensor: torch.Tensor
    place: str
    future: torch.futures.Future[Any]
    backend: Any = None  # that of its group: the next default group has the same name


def send(call: Call) -> Any:
    """Send a tensor after its header."""
    (tensor,), _, peer = call.args[:3]
    group = call.group
    if peer == group.rank():
        return _to_itself(group).put(tensor.clone(), _place())
    backend = group._get_backend(_CPU)
    header = _packed(tensor, _place())
    numbers = _as_bytes(tensor)
    works = [backend.send([header], peer, _HEADER)]
    if numbers.numel():
        works.append(backend.send([numbers], peer, _NUMBERS))
    return _cpp.PythonCallbackWork(_Sending(_Sent(works, [header, numbers]))).boxed()


def receive(call: Call) -> Any:
    """Receive a tensor, and compare it with what is sent."""
    (tensor,), _, peer = call.args[:3]
    group = call.group
    receipt = _Receipt(tensor, _place(), torch.futures.Future(), group._get_backend(_CPU))
    if peer == group.rank():
        return _to_itself(group).get(receipt)
    key = group.group_name, peer
    with _lock:
        reader = _readers.get(key)
        if reader is None:
            reader = _readers[key] = _Reader(key)
        reader.receipts.put(receipt)
    return ended_by(receipt.future)


class _Reader:
    """Receives from one rank, in order, on a thread that ends when there is nothing to do."""

    def __init__(self, key: tuple[str, int]) -> None:
        self.key = key
        self.receipts: queue.SimpleQueue[_Receipt] = queue.SimpleQueue()
        threading._start_new_thread(self._run, ())  # type: ignore[attr-defined] # it needs no GPUs

    def _run(self) -> None:
        while True:
            try:
                receipt = self.receipts.get(timeout=_IDLE_S)
            except queue.Empty:
                with _lock:
                    if self.receipts.empty():
                        _readers.pop(self.key, None)
                        return
                continue
            try:
                self._receive(receipt)
            except Exception as error:  # noqa: BLE001 - the program's `wait` raises it
                fail(receipt.future, error)
            else:
                receipt.future.set_result([receipt.tensor])

    def _receive(self, receipt: _Receipt) -> None:
        peer = self.key[1]
        header = torch.empty(struct.calcsize(_LAYOUT), dtype=torch.uint8, device="cpu")
        receipt.backend.recv([header], peer, _HEADER).wait()
        number, dtype, place = _unpacked(header)
        if number:
            is_same = _is_same(receipt.tensor, number, dtype)
            into = _as_bytes(
                receipt.tensor if is_same else torch.empty(number, dtype=getattr(torch, dtype), device="cpu")
            )
            receipt.backend.recv([into], peer, _NUMBERS).wait()
        _compare(receipt, number, dtype, f"rank {peer}", place)


_readers: dict[tuple[str, int], _Reader] = {}
_lock = threading.Lock()


class _Itself:
    """What a rank sends to itself."""

    def __init__(self) -> None:
        self.sent: collections.deque[tuple[torch.Tensor, str]] = collections.deque()
        self.awaited: collections.deque[_Receipt] = collections.deque()

    def put(self, tensor: torch.Tensor, place: str) -> Any:
        """Send a tensor, also before it is received."""
        self.sent.append((tensor, place))
        self._pair()
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result([tensor])
        return ended_by(future)

    def get(self, receipt: _Receipt) -> Any:
        """Receive a tensor, also before it is sent."""
        self.awaited.append(receipt)
        self._pair()
        return ended_by(receipt.future)

    def _pair(self) -> None:
        while self.sent and self.awaited:
            (tensor, place), receipt = self.sent.popleft(), self.awaited.popleft()
            dtype = str(tensor.dtype).removeprefix("torch.")
            try:
                _compare(receipt, tensor.numel(), dtype, "this rank", place)
            except torch.distributed.DistBackendError as error:
                fail(receipt.future, error)
            else:
                _as_bytes(receipt.tensor).copy_(_as_bytes(tensor))
                receipt.future.set_result([receipt.tensor])


_own: dict[str, _Itself] = collections.defaultdict(_Itself)


def _to_itself(group: Any) -> _Itself:
    return _own[group.group_name]


def forget(name: str) -> None:
    """Forget what a group of this name sent to itself."""
    _own.pop(name, None)


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the memory of a dense tensor, in its order."""
    return tensor.detach().as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def _packed(tensor: torch.Tensor, place: str) -> torch.Tensor:
    """Return the header of a send."""
    dtype = str(tensor.dtype).removeprefix("torch.").encode()
    header = struct.pack(_LAYOUT, tensor.numel(), dtype, place.encode()[-_PLACE_BYTES:])
    return torch.frombuffer(bytearray(header), dtype=torch.uint8)


def _unpacked(header: torch.Tensor) -> tuple[int, str, str]:
    number, dtype, place = struct.unpack(_LAYOUT, bytes(header.tolist()))
    return number, dtype.rstrip(b"\0").decode(), place.rstrip(b"\0").decode(errors="replace")


def _is_same(tensor: torch.Tensor, number: int, dtype: str) -> bool:
    return tensor.numel() == number and str(tensor.dtype) == f"torch.{dtype}"


def _compare(receipt: _Receipt, number: int, dtype: str, peer: str, place: str) -> None:
    """Raise an error for a send and a receive that do not fit."""
    tensor = receipt.tensor
    if _is_same(tensor, number, dtype):
        return
    mine = str(tensor.dtype).removeprefix("torch.")
    raise torch.distributed.DistBackendError(
        f"recv of {tensor.numel()} elements of {mine} at {receipt.place}, but {peer} sends "
        f"{number} of {dtype} at {place}: NCCL compares neither, and hangs or leaves stale numbers"
    )


def _place() -> str:
    """Return the program's line that is under way: its own before a library's."""
    frame: Any = sys._getframe(2)
    librarys = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((*_OURS, "<")):
            place = f"{name}:{frame.f_lineno}"
            if "-packages" not in name:
                return place
            librarys = librarys or place
        frame = frame.f_back
    return librarys or "an unknown line"

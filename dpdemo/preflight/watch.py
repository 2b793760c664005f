"""Noting what the user's code does inside replicas and what leaves no other trace there."""

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from dpdemo.preflight.evidence import Event
from dpdemo.preflight.places import calling_place, is_users

_FACTORIES = (
    "arange", "empty", "eye", "full", "linspace", "ones", "rand", "randint", "randn", "tensor", "zeros",
)  # fmt: skip


class Watch:
    """Collects what happens in one DataParallel call: events in its replicas, and warnings."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.warned: list[str] = []

    def note(self, kind: str, detail: str) -> None:
        """Add an event of the replica that this thread runs."""
        event = Event(kind, here.replica or 0, detail, calling_place())
        if event not in self.events:
            self.events.append(event)


class _Here(threading.local):
    """What this thread does: which replica it runs and where, for whose watch, and whether for our ends."""

    replica: int | None = None
    device: int | None = None
    watch: Watch | None = None
    is_aside: bool = False


here = _Here()


@contextlib.contextmanager
def being(**what: Any) -> Iterator[None]:
    """Set what this thread does, for the length of a `with` block."""
    before = {name: getattr(here, name) for name in what}
    vars(here).update(what)
    try:
        yield
    finally:
        vars(here).update(before)


class _WhileAny:
    """Holds a context open while any thread is in it: what each patched would be undone out of order."""

    def __init__(self, make: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._num_inside = 0
        self._undo = contextlib.ExitStack()

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Be in it, for the length of a `with` block."""
        with self._lock:
            if not self._num_inside:
                self._undo.enter_context(self._make())
            self._num_inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_inside -= 1
                if not self._num_inside:
                    self._undo.close()


@contextlib.contextmanager
def _patched() -> Iterator[None]:
    """Watch the functions of PyTorch that matter, and warnings: each is noted by the watch of its thread."""
    with contextlib.ExitStack() as undo:
        for name in ("named_parameters", "state_dict", "requires_grad_"):
            undo.enter_context(replaced(nn.Module, name, _on_module))
        for name in ("to", "cuda"):
            undo.enter_context(replaced(torch.Tensor, name, _on_move))
        for name in _FACTORIES:
            undo.enter_context(replaced(torch, name, _on_move))
        undo.enter_context(replaced(torch.Tensor, "backward", _on_backward))
        if not isinstance(warnings.showwarning, _NotedWarning):  # put back by another thread's catch_warnings
            undo.enter_context(replaced(warnings, "showwarning", lambda _, genuine: _NotedWarning(genuine)))
        yield


_PATCHES = _WhileAny(_patched)


@contextlib.contextmanager
def watched_by(watch: Watch) -> Iterator[None]:
    """Let a watch note what this thread does, and the replicas that it starts, for a `with` block."""
    with _PATCHES.open(), being(watch=watch):
        yield


def _on_module(name: str, genuine: Callable[..., Any]) -> Callable[..., Any]:
    def watched(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if here.replica is not None and here.watch is not None and getattr(module, "_is_replica", False):
            here.watch.note(name, type(module).__name__)
        return genuine(module, *args, **kwargs)

    return watched


def _on_move(name: str, genuine: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:
        result = genuine(*args, **kwargs)
        if not is_users(sys._getframe(1).f_code.co_filename):
            return result  # moving tensors is what DataParallel and virtual GPUs do
        if here.replica and here.watch is not None and isinstance(result, torch.Tensor) and result.is_cuda:
            index = result.get_device()
            if index != here.device and not (result is args[0] if args else False):
                here.watch.note("moved", f"{name} to cuda:{index}")
        return result

    return watched


def _on_backward(name: str, genuine: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:
        if here.replica is not None and here.watch is not None:
            here.watch.note(name, "")
        return genuine(*args, **kwargs)

    return watched


class _NotedWarning:
    """Notes what is warned of; it is shown, or not, as ever."""

    def __init__(self, genuine: Callable[..., Any]) -> None:
        self._genuine = genuine

    def __call__(self, message: Any, *args: Any, **kwargs: Any) -> None:
        if here.watch is not None:
            here.watch.warned.append(str(message))
        self._genuine(message, *args, **kwargs)


@contextlib.contextmanager
def replaced(
    owner: Any, name: str, make: Callable[[str, Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Replace `owner.name` by what `make` builds around it, and put it back."""
    genuine = getattr(owner, name)
    is_own = name in vars(owner)
    setattr(owner, name, make(name, genuine))
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, genuine)
        else:
            delattr(owner, name)


def threads_state() -> tuple[tuple[str, str], ...]:
    """Note the settings of PyTorch that belong to a thread."""
    autocast = str(torch.get_autocast_dtype("cuda")) if torch.is_autocast_enabled("cuda") else "off"
    cpu = str(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else "off"
    return (
        ("autocast('cuda')", autocast.removeprefix("torch.")),
        ("autocast('cpu')", cpu.removeprefix("torch.")),
        ("inference_mode", str(torch.is_inference_mode_enabled()).lower()),
        ("default device", _default_device()),
        ("saved_tensors_hooks", _hooks_in_force()),
    )


def _default_device() -> str:
    device = torch.get_default_device()
    return device.type if device.type != "cuda" else "cuda"


def _hooks_in_force() -> str:
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return "off" if hooks is None else "on"

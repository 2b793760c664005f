"""Noting what the user's code does inside replicas and what leaves no other trace there."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from dpdemo.preflight.evidence import Event
from dpdemo.preflight.places import calling_place, is_users

_FACTORIES = (
    "arange", "empty", "eye", "full", "linspace", "ones", "rand", "randint", "randn", "tensor", "zeros",
)  # fmt: skip


class _Here(threading.local):
    """Which replica this thread runs, and on which GPU."""

    replica: int | None = None
    device: int | None = None


here = _Here()


@contextlib.contextmanager
def inside_replica(index: int, device: int | None) -> Iterator[None]:
    """Mark this thread as running a replica."""
    before = (here.replica, here.device)
    here.replica, here.device = index, device
    try:
        yield
    finally:
        here.replica, here.device = before


class Watch:
    """Collects events while `applied` is open; one for each probe."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def note(self, kind: str, detail: str) -> None:
        """Add an event of the replica that this thread runs."""
        event = Event(kind, here.replica or 0, detail, calling_place())
        if event not in self.events:
            self.events.append(event)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Watch the functions of PyTorch that matter, for the length of a `with` block."""
        with contextlib.ExitStack() as undo:
            for name in ("named_parameters", "state_dict", "requires_grad_"):
                undo.enter_context(replaced(nn.Module, name, self._on_module))
            for name in ("to", "cuda"):
                undo.enter_context(replaced(torch.Tensor, name, self._on_move))
            for name in _FACTORIES:
                undo.enter_context(replaced(torch, name, self._on_move))
            undo.enter_context(replaced(torch.Tensor, "backward", self._on_backward))
            yield

    def _on_module(self, name: str, genuine: Callable[..., Any]) -> Callable[..., Any]:
        def watched(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if here.replica is not None and getattr(module, "_is_replica", False):
                self.note(name, type(module).__name__)
            return genuine(module, *args, **kwargs)

        return watched

    def _on_move(self, name: str, genuine: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            result = genuine(*args, **kwargs)
            if not is_users(sys._getframe(1).f_code.co_filename):
                return result  # moving tensors is what DataParallel and virtual GPUs do
            if here.replica and isinstance(result, torch.Tensor) and result.is_cuda:
                index = result.get_device()
                if index != here.device and not (result is args[0] if args else False):
                    self.note("moved", f"{name} to cuda:{index}")
            return result

        return watched

    def _on_backward(self, name: str, genuine: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            if here.replica is not None:
                self.note(name, "")
            return genuine(*args, **kwargs)

        return watched


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

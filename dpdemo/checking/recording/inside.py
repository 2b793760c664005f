"""Noting what the user's code does inside replicas, where that leaves no other trace."""

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.jit._builtins import _get_builtin_table as builtins_of_scripts

from dpdemo.checking.evidence import HOOKS_OF, Event
from dpdemo.checking.observing.hooks import Reach, returns_nothing
from dpdemo.checking.source import calling_place
from dpdemo.models.frames import is_users
from dpdemo.watching.seam import WhileAny, around, replaced

_FACTORIES = (
    "arange", "as_tensor", "asarray", "empty", "empty_like", "eye", "full", "full_like", "linspace",
    "logspace", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like",
    "randperm", "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like",
)  # fmt: skip
_DRAWS = ("bernoulli_", "exponential_", "normal_", "random_", "uniform_")
_DRAWN = ("bernoulli", "multinomial", "normal")
_METHODS = ("to", "cuda", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros")


class Watch:
    """Collects what happens in one DataParallel call: events in its replicas, and warnings."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.warned: list[str] = []
        self.mishaps: list[Exception] = []
        self._moved: dict[int, tuple[nn.Module, int]] = {}
        self._hooked: dict[int, tuple[object, int]] = {}
        self._reaches: dict[Event, tuple[Reach, bool]] = {}

    def safely(self, part: Callable[..., object], *args: Any) -> None:
        """Run a part of the watching; what goes wrong there is kept, and the program goes on."""
        try:
            part(*args)
        except Exception as error:  # noqa: BLE001 - objects of the user's may raise anything
            self.mishaps.append(error)

    def note(self, kind: str, detail: str) -> Event:
        """Add an event of the replica that this thread runs."""
        event = Event(kind, here.replica or 0, detail, calling_place())
        if event not in self.events:
            self.events.append(event)
        return event

    def all_events(self) -> tuple[Event, ...]:
        """List the events, each hook with whether it has kept and returned nothing."""
        for reach, _ in self._reaches.values():
            reach.look()
        quiet = {
            event for event, (reach, is_silent) in self._reaches.items() if is_silent and not reach.changed
        }
        return tuple(replace(event, is_quiet=True) if event in quiet else event for event in self.events)

    def note_warning(self, message: object) -> None:
        """Add the text of a warning."""
        self.warned.append(str(message))

    def note_hook(self, module: nn.Module, registering: str, hook: object) -> None:
        """Add an event where another replica has put a hook into the same dict of hooks."""
        hooks = getattr(module, HOOKS_OF[registering])
        _, first = self._hooked.setdefault(id(hooks), (hooks, here.replica or 0))
        if first != here.replica:
            event = self.note("hook", type(module).__name__)
            self._reaches.setdefault(event, (Reach(hook), returns_nothing(hook)))

    def note_module(self, module: nn.Module) -> None:
        """Add an event where another replica has moved the same module."""
        _, first = self._moved.setdefault(id(module), (module, here.replica or 0))
        if first != here.replica:
            self.note("module", type(module).__name__)


class _Here(threading.local):
    """What this thread does: which replica it runs and where, for whose watch, and whether for ours."""

    replica: int | None = None
    device: int | None = None
    watch: Watch | None = None
    is_aside: bool = False


here = _Here()


@contextlib.contextmanager
def being(**what: object) -> Iterator[None]:
    """Set what this thread does, for the length of a `with` block."""
    before = {name: getattr(here, name) for name in what}
    vars(here).update(what)
    try:
        yield
    finally:
        vars(here).update(before)


@contextlib.contextmanager
def _patched() -> Iterator[None]:
    """Watch the functions of PyTorch that matter: calls are noted by the watch of their thread."""
    with contextlib.ExitStack() as undo:
        for name in ("named_parameters", "state_dict", "requires_grad_"):
            undo.enter_context(replaced(nn.Module, name, _on_module))
        for name in ("to", "cuda"):
            undo.enter_context(replaced(nn.Module, name, _on_module_moved))
        for name in HOOKS_OF:
            undo.enter_context(replaced(nn.Module, name, _on_hook))
        for name in _METHODS:
            undo.enter_context(replaced(torch.Tensor, name, _on_move))
        for name in _DRAWS:
            undo.enter_context(replaced(torch.Tensor, name, _on_move))
        for name in _DRAWN:
            undo.enter_context(replaced(torch, name, _on_move))
        for name in _FACTORIES:
            undo.enter_context(replaced(torch, name, _on_move))
            undo.enter_context(_scripted_as(getattr(torch, name), name))
        undo.enter_context(replaced(torch.Tensor, "backward", _on_backward))
        yield


@contextlib.contextmanager
def _scripted_as(watched: object, name: str) -> Iterator[None]:
    """Let TorchScript take a stand-in for the operator: torch.func.jvp scripts some at its first use."""
    known: dict[int, str] = builtins_of_scripts()  # type: ignore[no-untyped-call] # PyTorch's own
    operator = f"aten::{name}"
    if operator not in known.values():
        yield
        return
    known[id(watched)] = operator
    try:
        yield
    finally:
        known.pop(id(watched), None)


@contextlib.contextmanager
def _noting_warnings() -> Iterator[None]:
    """Note warnings too, by the watch of their thread; inside of whatever records them."""
    if isinstance(warnings.showwarning, _NotedWarning):  # put back by another thread's catch_warnings
        yield
        return
    with replaced(warnings, "showwarning", lambda _, genuine: _NotedWarning(genuine)):
        yield


_PATCHES = WhileAny(_patched)
_WARNINGS = WhileAny(_noting_warnings)


@contextlib.contextmanager
def ready_to_watch() -> Iterator[None]:
    """Leave in place what watching needs, for a `with` block of many calls, each cheaper than patching."""
    with around(), _PATCHES.open():
        yield


@contextlib.contextmanager
def watched_by(watch: Watch) -> Iterator[None]:
    """Let a watch note what this thread does, and the replicas that it starts, for a `with` block."""
    with _PATCHES.open(), _WARNINGS.open(), being(watch=watch):
        yield


def _on_module(name: str, genuine: Callable[..., object]) -> Callable[..., object]:
    def watched(module: nn.Module, *args: object, **kwargs: object) -> object:
        if here.replica is not None and here.watch is not None and getattr(module, "_is_replica", False):
            here.watch.safely(here.watch.note, name, type(module).__name__)
        return genuine(module, *args, **kwargs)

    return watched


def _on_module_moved(_: str, genuine: Callable[..., object]) -> Callable[..., object]:
    def watched(module: nn.Module, *args: object, **kwargs: object) -> object:
        if here.replica is not None and here.watch is not None and is_users(_caller()):
            here.watch.safely(here.watch.note_module, module)
        return genuine(module, *args, **kwargs)

    return watched


def _caller() -> str:
    """Return the file of the function that has called a watched one."""
    return sys._getframe(2).f_code.co_filename


def _on_hook(name: str, genuine: Callable[..., object]) -> Callable[..., object]:
    def watched(module: nn.Module, *args: object, **kwargs: object) -> object:
        is_theirs = is_users(sys._getframe(1).f_code.co_filename)
        if is_theirs and here.replica is not None and here.watch is not None:
            here.watch.safely(here.watch.note_hook, module, name, (*args, kwargs.get("hook"))[0])
        return genuine(module, *args, **kwargs)

    return watched


def _on_move(name: str, genuine: Callable[..., object]) -> Callable[..., object]:
    def watched(*args: object, **kwargs: object) -> object:
        result = genuine(*args, **kwargs)
        frame = sys._getframe(1)
        if kwargs.get("generator") is not None and here.replica is not None and here.watch is not None:
            here.watch.safely(here.watch.note, "generator", name)
        if not is_users(frame.f_code.co_filename):
            return result  # moving tensors is what DataParallel and virtual GPUs do
        if here.replica and here.watch is not None and not (result is args[0] if args else False):
            here.watch.safely(_note_move, here.watch, name, result)
        return result

    return watched


def _note_move(watch: Watch, name: str, result: object) -> None:
    if isinstance(result, torch.Tensor) and result.is_cuda and result.get_device() != here.device:
        watch.note("moved", f"{name} to cuda:{result.get_device()}")


def _on_backward(name: str, genuine: Callable[..., object]) -> Callable[..., object]:
    def watched(*args: object, **kwargs: object) -> object:
        if here.replica is not None and here.watch is not None:
            here.watch.safely(here.watch.note, name, "")
        return genuine(*args, **kwargs)

    return watched


class _NotedWarning:
    """Notes warnings; they are shown, or not, as usual."""

    def __init__(self, genuine: Callable[..., object]) -> None:
        self._genuine = genuine

    def __call__(self, message: object, *args: object, **kwargs: object) -> None:
        if here.watch is not None:
            here.watch.safely(here.watch.note_warning, message)
        self._genuine(message, *args, **kwargs)


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
    return torch.get_default_device().type


def _hooks_in_force() -> str:
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return "off" if hooks is None else "on"

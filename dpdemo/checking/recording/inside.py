"""Noting what the user's code does inside replicas, where that leaves no other trace."""

import contextlib
import functools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.jit._builtins import _get_builtin_table as builtins_of_scripts
from torch.overrides import _get_current_function_mode_stack as function_modes
from torch.utils._device import DeviceContext

from dpdemo.calls.seam import WhileAny, around, replaced
from dpdemo.checking.evidence import HOOKS_OF, Event
from dpdemo.checking.observing.hooks import Reach
from dpdemo.checking.source import calling_place
from dpdemo.models.frames import is_users

_FACTORIES = (
    "arange", "as_tensor", "asarray", "empty", "empty_like", "eye", "full", "full_like", "linspace",
    "logspace", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like",
    "randperm", "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like",
)  # fmt: skip
_DRAWS = ("bernoulli_", "exponential_", "normal_", "random_", "uniform_")
_DRAWN = ("bernoulli", "multinomial", "normal")
_METHODS = ("to", "cuda", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros")


class ReplicaLog:
    """Collects what happens in one DataParallel call: events in its replicas, and warnings."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.warned: list[str] = []
        self.mishaps: list[Exception] = []
        self.reaches: dict[Event, Reach] = {}
        """By event, the values that a hook registered by a replica can write to."""
        self._first: dict[int, tuple[object, int]] = {}

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
        """List the events, each hook with whether it has kept anything."""
        for reach in self.reaches.values():
            reach.look()
        quiet = {event for event, reach in self.reaches.items() if not reach.changed}
        return tuple(replace(event, is_quiet=True) if event in quiet else event for event in self.events)

    def is_anothers(self, thing: object) -> bool:
        """Whether another replica has changed the same module, or the same dict of hooks, before."""
        _, first = self._first.setdefault(id(thing), (thing, here.replica or 0))
        return first != here.replica


class _Here(threading.local):
    """What this thread does: which replica it runs and where, for whose watch, and whether for ours."""

    replica: int | None = None
    device: int | None = None
    watch: ReplicaLog | None = None
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
        for owner, names, note in _WATCHED:
            for name in names:
                undo.enter_context(replaced(owner, name, functools.partial(_watching, note)))
        for name in _FACTORIES:
            undo.enter_context(_scripted_as(getattr(torch, name), name))
        yield


def _watching(note: "_Note", name: str, genuine: Callable[..., object]) -> Callable[..., object]:
    """Call a function of PyTorch; where a replica does, note it, with what it gave if it gave anything."""

    def watched(*args: Any, **kwargs: Any) -> object:
        result, watch = None, here.watch
        try:
            result = genuine(*args, **kwargs)
        finally:
            if here.replica is not None and watch is not None:
                file = sys._getframe(1).f_code.co_filename
                watch.safely(lambda: note(watch, _FunctionCall(name, args, kwargs, result, file)))
        return result

    return watched


@contextlib.contextmanager
def _scripted_as(watched: object, name: str) -> Iterator[None]:
    """Let TorchScript take a stand-in for the operator: torch.func.jvp scripts some at its first use."""
    known: dict[int, str] = builtins_of_scripts()  # type: ignore[no-untyped-call] # PyTorch's own
    operator = f"aten::{name}"
    if operator in known.values():
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
def watched_by(watch: ReplicaLog) -> Iterator[None]:
    """Let a watch note what this thread does, and the replicas that it starts, for a `with` block."""
    with _PATCHES.open(), _WARNINGS.open(), being(watch=watch):
        yield


class _FunctionCall(NamedTuple):
    """A call of a watched function, and the file that makes it."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    file: str

    @property
    def is_theirs(self) -> bool:
        """Whether the user's code makes it, and not PyTorch's."""
        return is_users(self.file)


_Note = Callable[[ReplicaLog, _FunctionCall], object]


def _note_module(watch: ReplicaLog, called: _FunctionCall) -> None:
    if any(getattr(part, "_is_replica", False) for part in called.args[0].modules()):
        watch.note(called.name, type(called.args[0]).__name__)


def _note_moved_module(watch: ReplicaLog, called: _FunctionCall) -> None:
    if called.is_theirs and watch.is_anothers(called.args[0]):
        watch.note("module", type(called.args[0]).__name__)


def _note_hook(watch: ReplicaLog, called: _FunctionCall) -> None:
    module, *others = called.args
    if called.is_theirs and watch.is_anothers(getattr(module, HOOKS_OF[called.name])):
        event = watch.note("hook", type(module).__name__)
        watch.reaches.setdefault(event, Reach((*others, called.kwargs.get("hook"))[0]))


def _note_tensor(watch: ReplicaLog, called: _FunctionCall) -> None:
    """Note a tensor that the user's code draws from a generator of its own, or puts on another GPU."""
    if called.kwargs.get("generator") is not None:
        watch.note("generator", called.name)
    result, given = called.result, called.args[0] if called.args else None
    is_new = called.is_theirs and isinstance(result, torch.Tensor) and result is not given
    if is_new and here.replica and result.is_cuda and result.get_device() != here.device:
        watch.note("moved", f"{called.name} to cuda:{result.get_device()}")


_WATCHED: tuple[tuple[object, Sequence[str], _Note], ...] = (
    (nn.Module, ("named_parameters", "state_dict", "requires_grad_"), _note_module),
    (nn.Module, ("to", "cuda"), _note_moved_module),
    (nn.Module, tuple(HOOKS_OF), _note_hook),
    (torch.Tensor, (*_METHODS, *_DRAWS), _note_tensor),
    (torch, (*_DRAWN, *_FACTORIES), _note_tensor),
    (torch.Tensor, ("backward",), lambda watch, called: watch.note(called.name, "")),
)
"""Functions of PyTorch that are watched: their owner, their names, and what to note."""


class _NotedWarning:
    """Notes warnings; they are shown, or not, as usual."""

    def __init__(self, genuine: Callable[..., object]) -> None:
        self._genuine = genuine

    def __call__(self, message: object, *args: object, **kwargs: object) -> None:
        if (watch := here.watch) is not None:
            watch.safely(lambda: watch.warned.append(str(message)))
        self._genuine(message, *args, **kwargs)


def threads_state() -> tuple[tuple[str, str], ...]:
    """Note the settings of PyTorch that belong to a thread."""
    autocast = str(torch.get_autocast_dtype("cuda")) if torch.is_autocast_enabled("cuda") else "off"
    cpu = str(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else "off"
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return (
        ("autocast('cuda')", autocast.removeprefix("torch.")),
        ("autocast('cpu')", cpu.removeprefix("torch.")),
        ("inference_mode", str(torch.is_inference_mode_enabled()).lower()),
        ("default device", _default_device()),
        ("saved_tensors_hooks", "off" if hooks is None else "on"),
    )


def _default_device() -> str:
    """Read the kind of the default device; `torch.get_default_device` makes a tensor there, a copy more."""
    contexts = [mode for mode in function_modes() if isinstance(mode, DeviceContext)]  # type: ignore[no-untyped-call] # PyTorch's own
    return str(contexts[-1].device.type) if contexts else "cpu"

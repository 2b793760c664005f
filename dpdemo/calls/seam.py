"""The one seam on DataParallel's steps: all listeners to a step, and changes of one, are here.

Every way of splitting a batch goes through six functions of `torch.nn.parallel`: `DataParallel.forward`
calls `scatter_kwargs`, `replicate`, `parallel_apply` and `gather` (torch/nn/parallel/data_parallel.py); so do
`data_parallel`, subclasses with a forward of their own, and programs that call the functions by hand. A
program may have imported their names long before, so it is not the name that is replaced: the function itself
gets other code, and later its own back. `DataParallel.__init__` shows when a wrapper is built,
`Scatter.apply` each tensor that is cut, whoever asks for it. A wrapper is called by `.__call__`, which runs
its hooks and the forward of a subclass too, or by `.forward` itself: that is a call unless it is part of one.

    with around(replicate=look): ...     # def look(proceed, *args, **kwargs): return proceed(*args, **kwargs)
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial, wraps
from types import FunctionType
from typing import Any

from torch import nn
from torch.nn.parallel._functions import Scatter

from dpdemo.virtual.applying import Patch, applied

Around = Callable[..., Any]
"""Called in place of a step, with `proceed` before the step's own arguments: `proceed` runs the step."""

_HOMES = {
    "scatter": "scatter_gather",
    "scatter_kwargs": "scatter_gather",
    "replicate": "replicate",
    "parallel_apply": "parallel_apply",
    "gather": "scatter_gather",
    "data_parallel": "data_parallel",
}
_METHODS: tuple[tuple[str, Any, str], ...] = (
    ("build", nn.DataParallel, "__init__"),
    ("call", nn.DataParallel, "__call__"),
    ("call", nn.DataParallel, "forward"),
    ("cut", Scatter, "apply"),
)
STEPS = {*(step for step, _, _ in _METHODS), *_HOMES}
"""`build`, `call` and `cut` are methods; the others are functions of torch.nn.parallel."""

_listeners: tuple[dict[str, Around], ...] = ()
_lock = threading.Lock()
_local = threading.local()


class WhileAny:
    """Holds one context open while any thread is in it: several would be undone out of order."""

    def __init__(self, make: Callable[[], AbstractContextManager[None]]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._num_inside = 0
        self._undo = ExitStack()

    @contextmanager
    def open(self) -> Iterator[None]:
        """Enter it for the length of a `with` block."""
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


@contextmanager
def around(**steps: Around) -> Iterator[None]:
    """Wrap steps of every DataParallel, process-wide, for the length of a `with` block.

    Args:
        steps: by the name of a step (one of `STEPS`), the function to call in its place. Of two blocks that
            are open at once, the later one is the outer. With none, the whole seam stays open, for blocks
            inside that open and close often.

    """
    unknown = set(steps) - STEPS
    assert not unknown, f"no steps of DataParallel: {unknown}"  # noqa: S101 - our own mistake
    global _listeners  # noqa: PLW0603 - functions of torch are one for the whole process, and so is this
    with ExitStack() as opened:
        opened.enter_context(_FUNCTIONS_SEAM.open())
        if not steps or any(step in steps for step, _, _ in _METHODS):  # each call pays for it, and few ask
            opened.enter_context(_METHODS_SEAM.open())
        with _lock:
            _listeners = (*_listeners, steps)
        try:
            yield
        finally:
            with _lock:
                _listeners = tuple(other for other in _listeners if other is not steps)


@contextmanager
def replaced(owner: object, name: str, make: Callable[[str, Around], Around]) -> Iterator[None]:
    """Replace `owner.name` by what `make` builds around it, and put it back after a `with` block."""
    with applied([Patch(owner, name, make(name, getattr(owner, name)), "it is watched")]):
        yield


def _through(step: str, genuine: Around, /, *args: object, **kwargs: object) -> object:
    """Run a step through all its listeners."""
    if step == "scatter" and getattr(_local, "in_scatter_kwargs", False):
        return genuine(*args, **kwargs)  # which is the step that was asked for
    proceed = genuine if step != "scatter_kwargs" else partial(_scatter_kwargs, genuine)
    for listener in _listeners:
        if step in listener:
            proceed = partial(listener[step], proceed)
    return proceed(*args, **kwargs)


def _scatter_kwargs(genuine: Around, /, *args: object, **kwargs: object) -> object:
    _local.in_scatter_kwargs = True
    try:
        return genuine(*args, **kwargs)
    finally:
        _local.in_scatter_kwargs = False


def _route(*args: object, _through: Around, **kwargs: object) -> object:
    """Lead through the seam: a function's code is replaced by this, with `_through` as a default."""
    return _through(*args, **kwargs)


@contextmanager
def _rerouted(step: str) -> Iterator[None]:
    """Replace the code of a function of torch.nn.parallel by `_route`'s, and put it back."""
    function: Any = vars(sys.modules[f"torch.nn.parallel.{_HOMES[step]}"])[step]
    code, keywords = function.__code__, function.__kwdefaults__
    genuine = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    genuine.__kwdefaults__ = keywords
    function.__kwdefaults__ = {"_through": partial(_through, step, genuine)}  # first: the code needs it
    function.__code__ = _route.__code__
    try:
        yield
    finally:
        function.__code__ = code
        function.__kwdefaults__ = keywords


def _as_call(genuine: Around, wrapper: object, /, *args: object, **kwargs: object) -> object:
    """Call a wrapper, and let the forward that it runs be no call of its own."""
    outer = getattr(_local, "called", ())
    _local.called = (*outer, wrapper)
    try:
        return genuine(wrapper, *args, **kwargs)
    finally:
        _local.called = outer


def _method(step: str, owner: Any, name: str) -> Patch:
    original: Around = getattr(owner, name)
    genuine = partial(_as_call, original) if step == "call" else original

    @wraps(original)
    def method(*args: object, **kwargs: object) -> object:
        if name == "forward" and any(other is args[0] for other in getattr(_local, "called", ())):
            return original(*args, **kwargs)
        return _through(step, genuine, *args, **kwargs)

    is_bound = hasattr(original, "__self__")  # a method of the class, which comes without it
    return Patch(
        owner, name, staticmethod(method) if is_bound else method, "a wrapper is built, called, or cuts"
    )


@contextmanager
def _open_functions() -> Iterator[None]:
    with ExitStack() as undo:
        for step in _HOMES:
            undo.enter_context(_rerouted(step))
        yield


@contextmanager
def _open_methods() -> Iterator[None]:
    with applied([_method(*where) for where in _METHODS]):
        yield


_FUNCTIONS_SEAM = WhileAny(_open_functions)
_METHODS_SEAM = WhileAny(_open_methods)

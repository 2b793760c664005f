"""Keep PyTorch's compiler from being imported for a prediction, which does not compile.

Optimizers, and those of PyTorch's kernels without numbers that are written in Python, call functions
that tell the compiler to leave them alone (`torch/_compile.py`, `torch/optim/optimizer.py`), and these import
it: a fifth of what a prediction costs. Here a stub answers the two things that they ask. Whoever asks for
anything else, such as a model that compiles a part of itself, gets the compiler, which then stays.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_NAME = "torch._dynamo"
_KEPT = "__dynamo_disable"
"""The attribute of a function in which `torch/_compile.py` caches the disabled one."""


class _NotCompiling(ModuleType):
    """Stands in for `torch._dynamo` as long as nobody compiles."""

    def __init__(self) -> None:
        super().__init__(_NAME)
        self._lock = threading.RLock()
        self._left_alone: list[Any] = []

    def disable(self, fn: Callable[..., Any], *_: object, **__: object) -> Callable[..., Any]:
        """Leave a function alone: it is called as it is."""
        self._left_alone.append(fn)
        return fn

    def graph_break(self, *_: object, **__: object) -> None:
        """Break no graph, for there is none."""

    def __getattr__(self, name: str) -> Any:
        # `inspect` asks every module for such names; the import of a part asks its parent for __path__
        if name.startswith("__") and name != "__path__":
            raise AttributeError(name)
        self.give_way()
        return getattr(importlib.import_module(_NAME), name)

    def give_way(self) -> None:
        """Leave, so that whoever imports the compiler from now on gets it."""
        with self._lock:
            if sys.modules.get(_NAME) is self:
                del sys.modules[_NAME]
            if vars(torch).get("_dynamo") is self:
                del vars(torch)["_dynamo"]
            while self._left_alone:
                vars(self._left_alone.pop()).pop(_KEPT, None)


@contextlib.contextmanager
def not_compiling() -> Iterator[None]:
    """Keep PyTorch's compiler from being loaded by who does not use it, for the length of a `with` block."""
    if _NAME in sys.modules:
        yield
        return
    stand_in = _NotCompiling()
    sys.modules[_NAME] = stand_in
    try:
        yield
    finally:
        stand_in.give_way()

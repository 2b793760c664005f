"""What containers, objects and functions on a model hold."""

import argparse
import contextlib
import functools
import queue
import sys
import threading
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import nn
from torch.distributions import Distribution, Transform

from dpdemo.calls.tree import text_of
from dpdemo.models.frames import is_users


def core_of(model: nn.Module) -> nn.Module:
    """Return a model without the DataParallel around it."""
    core = model.module if isinstance(model, nn.DataParallel) else model
    assert isinstance(core, nn.Module)  # noqa: S101 - PyTorch's stub does not say so
    return core


def attributes(value: object) -> dict[str, Any]:
    """List what an object has: in its `__dict__`, and of a class of the user's in `__slots__`."""
    slots = (vars(kind).get("__slots__", ()) for kind in type(value).__mro__ if is_users_class(kind))
    names = [name for slot in slots for name in ((slot,) if isinstance(slot, str) else slot)]
    held = {name: getattr(value, name) for name in names if name != "__dict__" and hasattr(value, name)}
    return held | getattr(value, "__dict__", {})


def is_changeable(value: object) -> bool:
    """Whether it may be changed where it is: a container, or an object of the user's with attributes."""
    is_object = is_of_users(value) and (hasattr(value, "__dict__") or bool(attributes(value)))
    return isinstance(value, (list, dict, set, deque)) or is_object


class Part(NamedTuple):
    """Something that a value holds, or the value itself."""

    path: str
    """The steps from the value, as `.kept`, `[0]` and `{key}`."""
    value: Any
    holders: tuple[object, ...] = ()
    """The objects and functions on the way to it, the innermost last; containers are none."""
    key: object = None
    """In a dict: its key."""


_DEEPEST = 4
"""So many objects and functions are looked into, one in the other."""
_MOST_PARTS = 5000


def walk(value: object, path: str = "") -> Iterator[Part]:
    """List a value, and all that it holds: in containers, objects of the user's and functions.

    Modules, tensors and classes are listed, and not looked into.
    """
    todo, opened, number = [Part(path, value)], set[int](), 0
    while todo and number < _MOST_PARTS:
        part = todo.pop()
        number += 1
        yield part
        if id(part.value) not in opened and len(part.holders) <= _DEEPEST:
            opened.add(id(part.value))
            todo += reversed(_parts(part))


def _parts(whole: Part) -> list[Part]:
    """List what a value holds by one step."""
    path, value, holders, _ = whole
    if isinstance(value, (torch.Tensor, nn.Module, type)):
        return []
    if isinstance(value, dict):
        return [
            Part(f"{path}{{{text_of(key)}}}", item, holders, key)
            for key, item in list(value.items())[:_MOST_PARTS]
        ]
    if isinstance(value, (list, tuple, set, deque)):
        return [Part(f"{path}[{at}]", item, holders) for at, item in enumerate(tuple(value)[:_MOST_PARTS])]
    holders = (*holders, value)
    if held := held_by(value):
        return [Part(f"{path}[{at}]", item, holders) for at, item in enumerate(held)]
    if is_of_users(value) or isinstance(value, (Distribution, Transform)):  # the rest is PyTorch's affair
        return [Part(f"{path}.{name}", item, holders) for name, item in attributes(value).items()]
    return []


def keys_of(value: object) -> list[object]:
    """List what a dict or a set looks up: its keys."""
    return list(value) if isinstance(value, (dict, set, frozenset, WeakKeyDictionary, WeakSet)) else []


def names_a_gpu(parts: Iterable[Part]) -> bool:
    """Whether any key is a GPU or has it in its name, or any part is a GPU."""
    return any("cuda" in text_of(part.key) or isinstance(part.value, torch.device) for part in parts)


_WAITED_FOR = (
    type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Semaphore,
    threading.Event, threading.Barrier, queue.Queue, queue.SimpleQueue,
)  # fmt: skip


def lets_wait(value: object) -> bool:
    """Whether threads can wait for each other at it: a lock, a queue or a barrier, or what holds one."""
    return any(isinstance(part.value, _WAITED_FOR) for part in walk(value))


def is_array(value: object) -> bool:
    """Whether it is an array of numbers of NumPy's, which need not be installed."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray) and not value.dtype.hasobject


def is_code(value: object) -> bool:
    """Whether it is a function, or stands for one; an object of the user's that can be called has a state."""
    return callable(value) and not is_of_users(value)


def is_of_users(value: object) -> bool:
    """Whether it is of a class of the user's, or of one for any attributes."""
    return isinstance(value, (types.SimpleNamespace, argparse.Namespace)) or is_users_class(type(value))


def is_users_class(kind: type) -> bool:
    """Whether a class is defined in a file of the user's, or in a notebook."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind.__module__ == "__main__" or (file is not None and is_users(file))


def values_around(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """List the variables of functions around a function that it names."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty cell
            yield name, cell.cell_contents


def held_by(value: object) -> list[object]:
    """List what a function, a bound method, a partial function or one with a cache holds."""
    if isinstance(value, types.FunctionType):
        around = (item for _, item in values_around(value))
        return [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *around]
    if isinstance(value, types.MethodType):
        return [value.__self__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    return [value.__wrapped__] if isinstance(value, functools._lru_cache_wrapper) else []

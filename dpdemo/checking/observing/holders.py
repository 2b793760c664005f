"""What containers, objects and functions on a model hold."""

import argparse
import contextlib
import functools
import queue
import sys
import threading
import types
from collections import deque
from typing import Any

from torch.distributions import Distribution, Transform

from dpdemo.models.frames import is_users


def attributes(value: object) -> dict[str, Any]:
    """List what an object has: in its `__dict__`, and of a class of the user's in `__slots__`."""
    slots = (vars(kind).get("__slots__", ()) for kind in type(value).__mro__ if is_users_class(kind))
    names = [name for one in slots for name in ((one,) if isinstance(one, str) else one)]
    held = {name: getattr(value, name) for name in names if name != "__dict__" and hasattr(value, name)}
    return held | getattr(value, "__dict__", {})


def is_changeable(value: object) -> bool:
    """Whether it may be changed where it is: a container, or an object of the user's with attributes."""
    is_object = is_of_users(value) and (hasattr(value, "__dict__") or bool(attributes(value)))
    return isinstance(value, (list, dict, set, deque)) or is_object


_WAITED_FOR = (
    type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Semaphore,
    threading.Event, threading.Barrier, queue.Queue, queue.SimpleQueue,
)  # fmt: skip
_DEEPEST = 3


def lets_wait(value: object, depth: int = 0) -> bool:
    """Whether threads can wait for each other at it: a lock, a queue or a barrier, or an object with one."""
    if isinstance(value, _WAITED_FOR):
        return True
    held = attributes(value).values() if is_of_users(value) and depth < _DEEPEST else ()
    return any(lets_wait(one, depth + 1) for one in held)


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


def is_looked_into(value: object) -> bool:
    """Whether tensors are looked for in it: an object of the user's, or one of `torch.distributions`.

    All else of PyTorch's is its own affair.
    """
    return is_of_users(value) or isinstance(value, (Distribution, Transform))


def is_users_class(kind: type) -> bool:
    """Whether a class is defined in a file of the user's, or in a notebook."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind.__module__ == "__main__" or (file is not None and is_users(file))


def held_by(value: object) -> list[object]:
    """List what a function, a bound method, a partial function or a container holds."""
    if isinstance(value, types.FunctionType):
        held = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # an empty cell
                held.append(cell.cell_contents)
        return held
    if isinstance(value, types.MethodType):
        return [value.__self__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, functools._lru_cache_wrapper):
        return [value.__wrapped__]
    if isinstance(value, (list, tuple)):
        return list(value)
    return list(value.values()) if isinstance(value, dict) else []

"""What a thread has of its own besides PyTorch's: ContextVars and `threading.local()`s of the user's."""

import contextvars
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import TypeVar

import torch

from dpdemo.checking.evidence import OfThread
from dpdemo.checking.inside import being, here
from dpdemo.models.frames import is_users

T = TypeVar("T")


def kept_for_this_thread() -> Iterator[OfThread]:
    """List what modules of the user's keep for this thread: set ContextVars, and `threading.local()`s."""
    modules = [one for one in list(sys.modules.values()) if type(one) is ModuleType and _is_users(one)]
    held = [(name, one) for each in modules for name, one in list(vars(each).items())]
    context = contextvars.copy_context()
    for name, one in held:  # by their types: to ask some objects for their class is to use them
        if issubclass(type(one), contextvars.ContextVar) and one in context:
            yield OfThread(f"ContextVar({one.name!r})", name, repr(context[one])[:60])
        elif issubclass(type(one), threading.local) and vars(one):
            values = ", ".join(f"{key}={value!r}" for key, value in vars(one).items())
            yield OfThread("threading.local()", name, values[:60])


def _is_users(module: ModuleType) -> bool:
    file = vars(module).get("__file__")
    return module.__name__ == "__main__" or (isinstance(file, str) and is_users(file))


def in_a_bare_thread(function: Callable[[], T]) -> T:
    """Call a function in a thread that has nothing of what this one's ContextVars and locals hold.

    Its GPU, its gradient mode and whose call it is are this thread's.
    """
    device, has_gradients = torch.cuda.current_device(), torch.is_grad_enabled()
    what = {"is_aside": here.is_aside, "watch": here.watch, "replica": here.replica, "device": here.device}

    def run() -> T:
        with being(**what), torch.cuda.device(device), torch.set_grad_enabled(has_gradients):
            return contextvars.Context().run(function)

    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(run).result()

"""Names of PyTorch's that stand for a C++ class: another class, which makes instances and knows them.

`torch.device(0)` on a build without CUDA is the first: C++ knows no accelerator there and refuses the number,
on which PyTorch's `Scatter` relies.
"""

from collections.abc import Callable
from typing import Any

import torch

from dpdemo.virtual.applying import replace
from dpdemo.virtual.state import as_device

_device: Any = torch.device


class Name(type):
    """A class in place of `original`: `make` makes its instances, and pickle takes it for the original."""

    original: Any
    make: Callable[..., Any]

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.original)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.original)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.original

    def __hash__(cls) -> int:
        return hash(cls.original)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make an instance."""
        return cls.make(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.original, name)


def name_for(original: Any, make: Callable[..., Any], kind: type[Name] = Name) -> Name:
    """Return a class that stands for `original`, whose instances `make` makes."""
    body = {"__module__": original.__module__, "__doc__": original.__doc__}
    return kind(original.__name__, (), {**body, "original": original, "make": staticmethod(make)})


def _make_device(*args: Any, **kwargs: Any) -> torch.device:
    if len(args) == 1 and not kwargs:
        args = (as_device(args[0]),)
    made: torch.device = _device(*args, **kwargs)
    return made


try:
    _understands_numbers = _device(0).type == "cuda"
except RuntimeError:
    _understands_numbers = False
if not _understands_numbers:
    replace(torch, "C++ refuses a bare number in a CPU build", device=name_for(_device, _make_device))

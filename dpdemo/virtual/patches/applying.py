"""A patch as data, and `applied`, which replaces attributes and puts every one back by identity."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ABSENT = object()


class Patch(NamedTuple):
    """An attribute of `owner` (an entry if that is a dict) that has another value while a block is open."""

    owner: Any
    name: Any
    value: Any
    why: str


class Attribute(property):
    """A property that torch._dynamo can inspect as it inspects the attributes that C++ defines."""

    __objclass__ = torch._C.TensorBase

    @property
    def __name__(self) -> str:
        return str(getattr(self.fget, "__name__", "")).removeprefix("get_")


def group(owner: Any, why: str, **values: Any) -> list[Patch]:
    """Return a patch for each attribute of `owner`, all with the same reason."""
    return [Patch(owner, name, value, why) for name, value in values.items()]


@contextlib.contextmanager
def applied(patches: Iterable[Patch]) -> Iterator[None]:
    """Apply `patches`, and put everything back on the way out, last first."""
    undo: list[tuple[Any, Any, Any]] = []  # an ExitStack would cost as much as the patches themselves
    try:
        for owner, name, value, _ in patches:
            before = attributes(owner).get(name, _ABSENT)
            _put(owner, name, value)
            undo.append((owner, name, before))
        yield
    finally:
        torch.accelerator.get_device_capability.cache_clear()
        _put_back(undo)


def _put_back(undo: list[tuple[Any, Any, Any]]) -> None:
    try:
        while undo:
            _put(*undo.pop())
    except BaseException:
        _put_back(undo)  # what fails, or Ctrl-C, keeps no other attribute from going back
        raise


def attributes(owner: Any) -> Any:
    """Return what `owner` itself has, by name."""
    return owner if isinstance(owner, dict) else vars(owner)


def _put(owner: Any, name: Any, value: Any) -> None:
    if isinstance(owner, dict):
        owner.pop(name, None) if value is _ABSENT else owner.__setitem__(name, value)
    elif value is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, value)

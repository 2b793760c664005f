"""A patch as data; `stands_in`, which registers one beside its function; and `Patches`, which undo them.

Everything that virtual GPUs replace in PyTorch is registered where the replacement is written, with the
reason why. `patches/__init__.py` collects what was registered. Observers of ranks apply theirs one by one.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch

from dpdemo.virtual.signatures import check_fits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dpdemo.virtual.state import Session

    OfSession = Callable[[Session], Iterable["Patch"]]

_ABSENT = object()
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_AS_SEQUENCE = object.__basicsize__ + 11 * _POINTER  # in PyTypeObject (Include/cpython/object.h)
_SQ_ITEM = 3 * _POINTER  # in PySequenceMethods
_Value = TypeVar("_Value")
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Decorates a function that gets PyTorch's own as its first argument, and goes around that."""


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
        return str(getattr(self.fget, "__name__", "")).removeprefix("_get_")


REGISTERED: list[Patch] = []
OF_SESSION: list[OfSession] = []


def stands_in(
    owner: Any, *names: str, why: str, form: Callable[[Any], Any] | None = None
) -> Callable[[_Value], _Value]:
    """Register a function as the replacement of attributes of `owner`.

    Args:
        owner: a module, a class or an object of PyTorch's. An attribute that a build does not have (a CPU
            build has no `torch._C._scatter`) is added, and taken away again.
        names: the attributes; by default the function's own name.
        why: the reason, as the tables and errors show it.
        form: what to make of the function first, such as `classmethod` or `Attribute`.

    """

    def register(value: _Value) -> _Value:
        formed = value if form is None else form(value)
        replace(owner, why, **dict.fromkeys(names or (value.__name__,), formed))  # type: ignore[attr-defined]
        return value

    return register


def wraps(owner: Any, *names: str, why: str) -> Callable[[_Value], _Value]:
    """Register what a function builds around each attribute, or around what was registered before."""

    def register(make: _Value) -> _Value:
        replace(owner, why, **{name: make(_latest(owner, name)) for name in names})  # type: ignore[operator]
        return make

    return register


def _latest(owner: Any, name: str) -> Any:
    known = (patch.value for patch in reversed(REGISTERED) if patch.owner is owner and patch.name == name)
    return next(known, getattr(owner, name))


def replace(owner: Any, why: str, **values: Any) -> None:
    """Register a value for each of several attributes of `owner`."""
    REGISTERED.extend(group(owner, why, **values))


def of_session(make: OfSession) -> OfSession:
    """Register a function that returns the patches that depend on the session."""
    OF_SESSION.append(make)
    return make


def group(owner: Any, why: str, **values: Any) -> list[Patch]:
    """Return a patch for each attribute of `owner`, all with the same reason."""
    return [Patch(owner, name, value, why) for name, value in values.items()]


def always(value: Any) -> Callable[..., Any]:
    """Return a function that returns `value`, whatever it is called with."""
    return lambda *_, **__: value


class Patches:
    """Patches that are applied one after another, at any time, and undone together: last first."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, Any, Any]] = []  # an ExitStack would cost as much as the patches

    def apply(self, patch: Patch) -> None:
        """Apply a patch, and remember what was there before."""
        owner, name, value, _ = patch
        before = attributes(owner).get(name, _ABSENT)
        _put(owner, name, value)
        self._undo.append((owner, name, before))

    def around(self, owner: Any, *names: str, why: str) -> Wrap:
        """Put a function around PyTorch's own, which it gets as its first argument.

        Args:
            owner: a module or a class; a tuple where several have the same function.
            names: of the function there; several where a class has it under more than one.
            why: the reason.

        Raises:
            TypeError: by the decorator, if a call that suits PyTorch's function would not suit the one around
                it (`signatures.py`).

        """

        def put(observer: Callable[..., Any]) -> Callable[..., Any]:
            owners = owner if isinstance(owner, tuple) else (owner,)
            original = getattr(owners[0], names[0])
            check_fits(original, observer)

            @functools.wraps(original)
            def call(*args: Any, **kwargs: Any) -> Any:
                return observer(original, *args, **kwargs)

            is_static = isinstance(attributes(owners[0]).get(names[0]), staticmethod)
            for each in owners:
                for name in names:
                    self.apply(Patch(each, name, staticmethod(call) if is_static else call, why))
            return call

        return put

    def undo(self) -> None:
        """Put everything back, whatever happens."""
        _put_back(self._undo)


@contextlib.contextmanager
def applied(patches: Iterable[Patch]) -> Iterator[None]:
    """Apply `patches`, and put everything back on the way out, last first."""
    opened = Patches()
    try:
        for patch in patches:
            opened.apply(patch)
        yield
    finally:
        torch.accelerator.get_device_capability.cache_clear()
        opened.undo()


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
        return
    delattr(owner, name) if value is _ABSENT else setattr(owner, name, value)
    if owner is torch.Tensor and name == "__getitem__":
        for cls in _classes_with(owner.__getitem__, owner):
            _empty_sq_item(cls)


def _classes_with(method: Any, cls: type[Any]) -> Iterator[type[Any]]:
    """Yield a class and those derived from it that have this `__getitem__`."""
    if getattr(cls, "__getitem__", None) == method:
        yield cls
        for derived in cls.__subclasses__():
            yield from _classes_with(method, derived)


def _empty_sq_item(cls: type) -> None:
    """Make `PySequence_Check` false for a class again, as before `__getitem__` was replaced.

    CPython fills `sq_item` beside `mp_subscript` for any `__getitem__` in Python, and leaves it filled when
    the attribute goes back to C++'s. `torch.tensor` would then take a number in a list for a sequence.
    """
    methods = ctypes.c_void_p.from_address(id(cls) + _AS_SEQUENCE).value
    if methods is not None:
        ctypes.c_void_p.from_address(methods + _SQ_ITEM).value = None

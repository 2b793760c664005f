"""What hooks keep of a call: seen by what they reach, before and after it."""

import functools
import inspect
import re
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

from torch import nn

from dpdemo.checking.evidence import KeepingHook
from dpdemo.checking.observing.holders import is_users_class, values_around, walk
from dpdemo.checking.observing.state import HOOKS
from dpdemo.checking.source import code_of
from dpdemo.models.frames import is_users


def unwrapped(hook: object) -> object:
    """Take a function out of `functools.partial`."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    return hook


def name_of(hook: object) -> str:
    """Name the function that a hook calls, or the class of an object that is one."""
    function = unwrapped(hook)
    return str(getattr(function, "__qualname__", type(function).__name__))


def users_hooks(module: nn.Module) -> list[object]:
    """List the hooks of a module that are neither PyTorch's own, as of weight norm, nor ours."""
    return [hook for name in HOOKS for hook in getattr(module, name, {}).values() if is_users_hook(hook)]


def is_users_hook(hook: object) -> bool:
    """Return whether a hook is of the user's code."""
    return code_of(unwrapped(hook)) is not None


class Reach:
    """What a hook can write to: by closure, default, bound object or a name of its file."""

    def __init__(self, hook: object) -> None:
        self._hook = hook
        self._before = self._held()
        self.changed: dict[str, object] = {}
        """What was put there since, by where it is: `.kept`, `features{fc}`, `[0]`."""

    def look(self) -> None:
        """Note what is another than before."""
        now = self._held()
        self.changed |= {path: now[path] for path in now if now[path] is not self._before.get(path)}
        self.changed |= {path: None for path in self._before if path not in now}

    @property
    def new_entries(self) -> int | None:
        """How many values were put into dicts; None where anything else has changed."""
        return len(self.changed) if all(path.endswith("}") for path in self.changed) else None

    @property
    def names(self) -> frozenset[str]:
        """The names under which it keeps what it keeps: of attributes, of variables, of keys."""
        return frozenset(part for path in self.changed for part in re.findall(r"\w+", path))

    def _held(self) -> dict[str, object]:
        parts = (part for name, value in _reached(self._hook) for part in walk(value, name) if part.path)
        return {part.path: part.value for part in parts if not isinstance(part.value, _CONTAINERS)}


_CONTAINERS = (dict, list, tuple, set, deque)


Reaches = dict[tuple[str, str], Reach]
"""By module and function, what each hook can write to."""


def reaches_of(model: nn.Module, *, looks_within: bool = False) -> Reaches:
    """Look at what each hook of the user's can write to, before a call.

    With `looks_within` also just after its module has run: forward may take away what a hook keeps.
    """
    found: Reaches = {}
    for path, module in model.named_modules():
        for hook in users_hooks(module):
            reach = found[path or type(module).__name__, name_of(hook)] = Reach(hook)
            if looks_within:
                module.register_forward_hook(lambda *_, reach=reach: reach.look())
    return found


def changed(reaches: Reaches) -> tuple[KeepingHook, ...]:
    """List the hooks that have kept something of a call that is over."""
    for reach in reaches.values():
        reach.look()
    return tuple(KeepingHook(*key, reach.names) for key, reach in reaches.items() if reach.changed)


def _reached(hook: object) -> Iterator[tuple[str, object]]:
    """List what a hook can write to, with the name that it has there."""
    while isinstance(hook, functools.partial):
        yield from ((f"[{at}]", item) for at, item in enumerate((*hook.args, *hook.keywords.values())))
        hook = hook.func
    owner = getattr(hook, "__self__", None)
    function: Any = getattr(hook, "__func__", hook)
    if not isinstance(function, types.FunctionType):  # an object that is called
        owner, function = function, vars(type(function)).get("__call__")
    yield from _opened("", owner)
    for inner in functions_from(function):
        for name, value in values_named_by(inner):
            yield from _opened(name, value)


def _opened(path: str, value: object) -> Iterator[tuple[str, object]]:
    """List a module by its public attributes, and all else as it is."""
    if not isinstance(value, nn.Module):
        yield path, value
        return
    yield from ((f"{path}.{name}", item) for name, item in vars(value).items() if not name.startswith("_"))


def values_named_by(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """List what a function names: the defaults of its arguments, and variables around it and of its file."""
    code, defaults = function.__code__, function.__defaults__ or ()
    arguments = code.co_varnames[: code.co_argcount]
    yield from zip(reversed(arguments), reversed(defaults), strict=False)
    yield from (function.__kwdefaults__ or {}).items()
    yield from values_around(function)
    yield from ((name, function.__globals__[name]) for name in code.co_names if name in function.__globals__)


def functions_from(function: object) -> Iterator[types.FunctionType]:
    """List a function, and those around it, or of its file, that it names."""
    return _functions(function, set())


_MOST_FUNCTIONS = 500
"""Functions of a model that are looked at."""


def users_classes(model: nn.Module) -> set[type]:
    """List the classes of a model's modules that are the user's."""
    return {cls for module in model.modules() for cls in type(module).__mro__ if is_users_class(cls)}


def functions_of(model: nn.Module) -> Iterator[types.FunctionType]:
    """List the functions of the user's that a model's classes have, or name."""
    seen: set[int] = set()
    for value in (value for cls in users_classes(model) for value in vars(cls).values()):
        for callee in (value, getattr(value, "__func__", None), getattr(value, "fget", None)):
            inner = inspect.unwrap(callee) if callable(callee) else callee
            yield from _functions(inner, seen, _MOST_FUNCTIONS, users_only=True)


def _functions(
    function: object, seen: set[int], most: int = 50, *, users_only: bool = False
) -> Iterator[types.FunctionType]:
    if not isinstance(function, types.FunctionType) or id(function) in seen or len(seen) > most:
        return
    seen.add(id(function))
    if users_only and not is_users(function.__code__.co_filename):
        return
    yield function
    for _, value in values_named_by(function):
        yield from _functions(value, seen, most, users_only=users_only)

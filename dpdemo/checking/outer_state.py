"""Counts and lists of the user's classes, files and functions, which all replicas share."""

import collections
import sys
import types
from collections.abc import Iterator
from typing import Any

from torch import nn

from dpdemo.checking.evidence import StateChange
from dpdemo.checking.holders import is_users_class
from dpdemo.models.frames import is_users

Sizes = dict[str, float]
"""By name: a number as it is, of a list its length."""


def sizes_outside(model: nn.Module) -> Sizes:
    """Note the numbers and lists of the model's classes, and those of their files that methods name.

    Those of other classes of these files, and of their instances, too: `Clock.ticks`; and what functions keep
    as attributes, in defaults or in closures.
    """
    return {name: size for name, place in _places(model).items() for size in _size(_value(place))}


def put_back(model: nn.Module, before: Sizes) -> None:
    """Undo what a call has counted outside of the model, so that the next one starts where it did."""
    for name, place in _places(model).items():
        value, size = _value(place), before.get(name)
        if size is None or size in _size(value):
            continue
        if isinstance(value, (list, collections.deque)):
            while len(value) > size:
                value.pop()
        else:
            _store(place, int(size) if isinstance(value, int) else size)


_Where = tuple[Any, str | int]
"""What has an attribute, and its name there; of a function's default its number."""


def _places(model: nn.Module) -> dict[str, _Where]:
    """Find by their names what methods of the model's classes can reach without the model."""
    found: dict[str, _Where] = {}
    modules = list(model.modules())
    for cls in {cls for module in modules for cls in type(module).__mro__}:
        home = sys.modules.get(cls.__module__)
        if home is None or not is_users_class(cls):
            continue
        named = {word for one in vars(cls).values() for word in _names_in(one)}
        helpers = [vars(home).get(name) for name in named]
        named |= {word for one in helpers for word in _names_in(one)}
        found |= {f"{cls.__name__}.{name}": (cls, name) for name in named & vars(cls).keys()}
        for one in (*vars(cls).values(), *helpers):
            found |= _kept_by(one)
        for name in named & vars(home).keys():
            found[name] = home, name
            inner = vars(home)[name]
            if _is_users_own(inner):
                found |= {f"{name}.{part}": (inner, part) for part in vars(inner)}
    for value in (value for module in modules for value in vars(module).values()):
        found |= _kept_by(value)
    return found


def _kept_by(function: object) -> dict[str, _Where]:
    """Find what a function of the user's has: attributes, defaults, and numbers of the function around it.

    A list around it may be there to watch what is called: it stays as it is.
    """
    if not isinstance(function, types.FunctionType) or not is_users(function.__code__.co_filename):
        return {}
    name, code, defaults = function.__name__, function.__code__, function.__defaults__ or ()
    first = code.co_argcount - len(defaults)
    cells = list(zip(code.co_freevars, function.__closure__ or (), strict=True))
    numbers = [(part, cell) for part, cell in cells if isinstance(_value((cell, "")), (int, float))]
    return (
        {f"{name}.{part}": (function, part) for part in vars(function)}
        | {f"{name}.{code.co_varnames[first + at]}": (function, at) for at in range(len(defaults))}
        | {f"{name}.{part}": (cell, "cell_contents") for part, cell in numbers}
    )


def _is_users_own(value: object) -> bool:
    """Whether it is a class of the user's that is no module, or an instance of one."""
    kind = value if isinstance(value, type) else type(value)
    return hasattr(value, "__dict__") and not issubclass(kind, nn.Module) and is_users_class(kind)


def _value(place: _Where) -> object:
    owner, name = place
    if isinstance(name, int):
        return owner.__defaults__[name]
    if isinstance(owner, types.CellType):
        try:
            return owner.cell_contents
        except ValueError:  # it is empty as yet
            return None
    return vars(owner).get(name)


def _store(place: _Where, value: float) -> None:
    owner, name = place
    if isinstance(name, str):  # a default that is a number is the same in every call
        setattr(owner, name, value)


def _names_in(function: object) -> tuple[str, ...]:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return code.co_names if code is not None else ()


def _size(value: object) -> Iterator[float]:
    if isinstance(value, (list, collections.deque)):
        yield len(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value


def grown_in_each(
    single: tuple[Sizes, Sizes], parallel: tuple[Sizes, Sizes], times: int
) -> Iterator[StateChange]:
    """List what each of so many replicas has made larger by as much as a call on one GPU does.

    Args:
        single: the sizes before and after a call on one GPU.
        parallel: those before and after a call under DataParallel.
        times: the number of replicas.

    """
    for name in single[0]:
        alone, split = (after.get(name, 0) - before.get(name, 0) for before, after in (single, parallel))
        if alone > 0 and times > 1 and split == times * alone:
            yield StateChange(name, "outer", "", f"{alone:g}", f"{split:g}", True, True, same=False)

"""Counts and lists of the user's classes and files, outside of any module: all replicas write to them."""

import collections
import sys
from collections.abc import Iterator

from torch import nn

from dpdemo.checking.evidence import StateChange
from dpdemo.checking.holders import is_users_class

Sizes = dict[str, float]
"""By name: a number as it is, of a list its length."""


def sizes_outside(model: nn.Module) -> Sizes:
    """Note the numbers and lists of the model's classes, and those of their files that methods name.

    Those of other classes of these files, and of their instances, too: `Clock.ticks`.
    """
    return {name: size for name, place in _places(model).items() for size in _size(_value(place))}


def put_back(model: nn.Module, before: Sizes) -> None:
    """Undo what a call has counted outside of the model, so that the next one starts where it did."""
    for name, (owner, attribute) in _places(model).items():
        value, size = _value((owner, attribute)), before.get(name)
        if size is None or size in _size(value):
            continue
        if isinstance(value, (list, collections.deque)):
            while len(value) > size:
                value.pop()
        else:
            setattr(owner, attribute, int(size) if isinstance(value, int) else size)


_Where = tuple[object, str]
"""What has an attribute, and its name there."""


def _places(model: nn.Module) -> dict[str, _Where]:
    """Find by their names what methods of the model's classes can reach without the model."""
    found: dict[str, _Where] = {}
    for cls in {cls for module in model.modules() for cls in type(module).__mro__}:
        home = sys.modules.get(cls.__module__)
        if home is None or not is_users_class(cls):
            continue
        named = {word for one in vars(cls).values() for word in _names_in(one)}
        helpers = [vars(home).get(name) for name in named]
        named |= {word for one in helpers for word in _names_in(one)}
        found |= {f"{cls.__name__}.{name}": (cls, name) for name in named & vars(cls).keys()}
        for name in named & vars(home).keys():
            found[name] = home, name
            inner = vars(home)[name]
            if _is_users_own(inner):
                found |= {f"{name}.{part}": (inner, part) for part in vars(inner)}
    return found


def _is_users_own(value: object) -> bool:
    """Whether it is a class of the user's that is no module, or an instance of one."""
    kind = value if isinstance(value, type) else type(value)
    return hasattr(value, "__dict__") and not issubclass(kind, nn.Module) and is_users_class(kind)


def _value(place: _Where) -> object:
    owner, attribute = place
    return vars(owner).get(attribute)


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

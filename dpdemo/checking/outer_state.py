"""Counts and lists of the user's classes and files, outside of any module: all replicas write to them."""

import collections
import sys
from collections.abc import Iterator

from torch import nn

from dpdemo.checking.evidence import StateChange
from dpdemo.models.frames import is_users

Sizes = dict[str, float]
"""By name: a number as it is, of a list its length."""


def sizes_outside(model: nn.Module) -> Sizes:
    """Note the numbers and lists of the model's classes, and those of their files that methods name."""
    found: Sizes = {}
    for cls in {cls for module in model.modules() for cls in type(module).__mro__}:
        home = sys.modules.get(cls.__module__)
        if not is_users(getattr(home, "__file__", None) or ""):
            continue
        named = {word for one in vars(cls).values() for word in _names_in(one)}
        known = {name: vars(home)[name] for name in named & vars(home).keys()}
        inside = {f"{cls.__name__}.{name}": value for name, value in vars(cls).items() if name in named}
        found |= {name: size for name, value in {**known, **inside}.items() for size in _size(value)}
    return found


def _names_in(function: object) -> tuple[str, ...]:
    code = getattr(function, "__code__", None)
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

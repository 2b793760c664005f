"""Dicts of a file or class, and cached functions, in which forward keeps tensors for later calls."""

import functools
from collections.abc import Iterator

import torch
from torch import nn

from dpdemo.checking.evidence import Cache
from dpdemo.checking.observing.holders import is_users_class
from dpdemo.checking.observing.hooks import functions_from
from dpdemo.checking.source import place_of_function
from dpdemo.watching.tree import tensors_in


def caches_of(model: nn.Module) -> tuple[Cache, ...]:
    """List what methods of the model reach by name, and what holds tensors by keys that name no GPU."""
    classes = {cls for module in model.modules() for cls in type(module).__mro__ if is_users_class(cls)}
    found: dict[str, Cache] = {}
    for cls in classes:
        for name, value in vars(cls).items():
            if _holds_tensors(value):
                found[name] = Cache(name, "a dict of the class")
            for function in functions_from(value):
                for cache in _named_by(function):
                    found[cache.name] = cache
    return tuple(found.values())


def _named_by(function: object) -> Iterator[Cache]:
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    known = getattr(function, "__globals__", {})
    for name in names:
        value = known.get(name)
        if _holds_tensors(value):
            yield Cache(name, "a dict of the file")
        elif isinstance(value, functools._lru_cache_wrapper) and value.cache_info().currsize:
            yield Cache(name, "a function that keeps its results", place_of_function(value.__wrapped__))


def _holds_tensors(value: object) -> bool:
    """Whether it is a dict with tensors on a GPU, and no key names that."""
    if not isinstance(value, dict) or not any(one.is_cuda for one in tensors_in(dict(value))):
        return False
    return not any(_names_a_gpu(key) for key in value)


def _names_a_gpu(key: object) -> bool:
    if isinstance(key, tuple):
        return any(map(_names_a_gpu, key))
    return isinstance(key, torch.device) or "cuda" in str(key)

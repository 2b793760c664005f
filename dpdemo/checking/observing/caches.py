"""Dicts, objects and cached functions outside of the model in which forward keeps tensors."""

import dis
import functools
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch
from torch import nn

from dpdemo.checking.evidence import Cache
from dpdemo.checking.observing.holders import is_of_users, is_users_class, names_a_gpu, walk
from dpdemo.checking.observing.hooks import functions_of, values_named_by
from dpdemo.checking.source import place_of_function

_STORES = frozenset({"STORE_GLOBAL", "STORE_ATTR", "STORE_DEREF"})


def caches_of(model: nn.Module) -> tuple[Cache, ...]:
    """List what a model's functions reach by name, and what holds tensors by keys that name no GPU."""
    found: dict[str, Cache] = {}
    for one in (*_of_classes(model), *_named_by_functions(model)):
        users = found[one.name].users if one.name in found else frozenset()
        found[one.name] = Cache(one.name, one.kind, one.place, one.users | users)
    return tuple(found.values())


def _of_classes(model: nn.Module) -> Iterator[Cache]:
    stored = {name for function in functions_of(model) for name in _stored_by(function)}
    classes = {cls for module in model.modules() for cls in type(module).__mro__ if is_users_class(cls)}
    for name, value in (item for cls in classes for item in vars(cls).items()):
        function = getattr(value, "__func__", value)
        if isinstance(function, functools._lru_cache_wrapper):
            yield from _of_cached(name, function)
        elif kind := _kind(value, is_stored=name in stored):
            yield Cache(name, f"{kind} of the class")


def _of_cached(name: str, function: Any, users: frozenset[str] = frozenset()) -> Iterator[Cache]:
    """Yield a function that keeps its results, if it has kept some."""
    if function.cache_info().currsize:
        yield Cache(name, "a function that keeps its results", place_of_function(function.__wrapped__), users)


def _named_by_functions(model: nn.Module) -> Iterator[Cache]:
    for function in functions_of(model):
        stored = set(_stored_by(function))
        for name, value in values_named_by(function):
            user = frozenset({function.__name__})
            if isinstance(value, functools._lru_cache_wrapper):
                yield from _of_cached(name, value, user)
            elif kind := _kind(value, is_stored=name in stored):
                yield Cache(name, f"{kind} outside of the model", None, user)


def _stored_by(function: FunctionType) -> Iterator[str]:
    """List the names outside of a function, and the attributes, that it assigns."""
    yield from (one.argval for one in dis.get_instructions(function) if one.opname in _STORES)


def _kind(value: Any, *, is_stored: bool) -> str:
    """Name what a value is, if it holds tensors on a GPU and no key names that; "" of all else."""
    parts = [*walk(value)]
    on_gpu = any(isinstance(part.value, torch.Tensor) and part.value.is_cuda for part in parts)
    if not on_gpu or names_a_gpu(parts):
        return ""
    if isinstance(value, dict):
        return "a dict"
    if isinstance(value, (torch.Tensor, list, tuple)):
        return "a tensor" if is_stored else ""
    return "an object" if is_of_users(value) and not isinstance(value, (type, nn.Module)) else ""

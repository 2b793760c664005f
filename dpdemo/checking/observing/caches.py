"""Dicts, objects and cached functions outside of the model in which forward keeps tensors."""

import dis
import functools
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch
from torch import nn

from dpdemo.checking.evidence import Cache
from dpdemo.checking.observing.holders import is_of_users, names_a_gpu, walk
from dpdemo.checking.observing.hooks import functions_of, users_classes, values_named_by

_STORES = frozenset({"STORE_GLOBAL", "STORE_ATTR", "STORE_DEREF"})


def caches_of(model: nn.Module) -> tuple[Cache, ...]:
    """List what a model's functions reach by name, and what holds tensors by keys that name no GPU."""
    found: dict[str, Cache] = {}
    for name, value, where, stored, user in _reached(model):
        users = user | found[name].users if name in found else user
        if isinstance(value, functools._lru_cache_wrapper):
            if value.cache_info().currsize:
                found[name] = Cache(name, "a function that keeps its results", users)
        elif kind := _kind(value, is_stored=name in stored):
            found[name] = Cache(name, f"{kind} {where}", users)
    return tuple(found.values())


def _reached(model: nn.Module) -> Iterator[tuple[str, Any, str, set[str], frozenset[str]]]:
    """List by name, with its value, what classes have and functions name.

    Each with where that is, the names that are assigned there, and the function that names it.
    """
    stored = {function: set(_stored_by(function)) for function in functions_of(model)}
    of_all = set().union(*stored.values())
    for name, value in (item for cls in users_classes(model) for item in vars(cls).items()):
        yield name, getattr(value, "__func__", value), "of the class", of_all, frozenset()
    for function, names in stored.items():
        for name, value in values_named_by(function):
            yield name, value, "outside of the model", names, frozenset({function.__name__})


def _stored_by(function: FunctionType) -> Iterator[str]:
    """List the names outside of a function, and the attributes, that it assigns."""
    yield from (step.argval for step in dis.get_instructions(function) if step.opname in _STORES)


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

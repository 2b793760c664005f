"""Tensors that a cache of functions keeps from a prediction: they are on no GPU of the next one.

Models keep tensors that depend on shapes alone, such as positions, in caches of the whole process
(`functools.lru_cache`). The next prediction in this process would find them there, on GPUs that are gone.
"""

import functools
import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dpdemo.virtual.labels import is_of_a_block

_Cache = type(functools.lru_cache(len))


@contextmanager
def caches_emptied() -> Iterator[None]:
    """Empty the caches that hold tensors of virtual GPUs after a `with` block."""
    try:
        yield
    finally:
        for cache in [one for one in gc.get_objects() if type(one) is _Cache]:
            if _holds_tensor(gc.get_referents(cache)):
                cache.cache_clear()


def _holds_tensor(values: object) -> bool:
    """Return whether a tensor of virtual GPUs is among the results that a cache holds."""
    if isinstance(values, torch.Tensor):
        return is_of_a_block(values)
    if isinstance(values, dict):
        return any(map(_holds_tensor, values.values()))
    return isinstance(values, (list, tuple)) and any(map(_holds_tensor, values))

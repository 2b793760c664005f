"""Clear caches that would hand tensors of one prediction to the next.

Models keep tensors that depend on shapes alone, such as positions, in caches of the whole process
(`functools.lru_cache`). The next prediction would find them there, on GPUs that no longer exist.
"""

import functools
import gc
from collections.abc import Iterator
from contextlib import contextmanager

from dpdemo.calls.tree import tensors_in
from dpdemo.virtual.labels import is_of_a_block

_Cache = type(functools.lru_cache(len))


@contextmanager
def caches_emptied() -> Iterator[None]:
    """Clear the caches that hold tensors of virtual GPUs after a `with` block."""
    try:
        yield
    finally:
        for cache in [found for found in gc.get_objects() if type(found) is _Cache]:
            if any(map(is_of_a_block, tensors_in(gc.get_referents(cache)))):
                cache.cache_clear()

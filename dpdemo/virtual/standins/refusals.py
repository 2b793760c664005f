"""What only a real GPU has: each is an error that names it, and not PyTorch's "dummy base class".

The public names are listed below. The functions of `torch._C` that a build for CUDA has and this one lacks
are refused as they are met: `missing_function` stands in for the module's own lookup of names.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from dpdemo.virtual.errors import UnsupportedOpError

if TYPE_CHECKING:
    from collections.abc import Iterator

_GRAPHS = "a virtual GPU runs every operator at once and records none"
_POOLS = "a virtual GPU has no allocator to hand out pools of"
_SENSORS = "a virtual GPU has no sensors"
_STREAMS = "a virtual GPU has no streams of the CUDA runtime"
_LIBRARIES = "a virtual GPU has no libraries of CUDA's"
_DISK = "a virtual GPU reads no disks"

REFUSED = {
    "torch.cuda.graphs": dict.fromkeys(
        ("CUDAGraph", "graph", "graph_pool_handle", "make_graphed_callables"), _GRAPHS
    ),
    "torch.accelerator": {"Graph": _GRAPHS},
    "torch.cuda.memory": dict.fromkeys(
        ("MemPool", "use_mem_pool", "CUDAPluggableAllocator", "change_current_allocator"), _POOLS
    ),
    "torch.cuda": {
        **dict.fromkeys(("clock_rate", "power_draw", "temperature", "utilization", "memory_usage"), _SENSORS),
        "get_stream_from_external": _STREAMS,
        **dict.fromkeys(("current_blas_handle", "current_solver_handle", "_compile_kernel"), _LIBRARIES),
    },
    "torch.cuda.streams": {"ExternalStream": _STREAMS},
    "torch.cuda.green_contexts": dict.fromkeys(
        ("GreenContext", "get_num_locality_domains", "is_localization_supported"), _STREAMS
    ),
    "torch.cuda.gds": dict.fromkeys(("GdsFile", "gds_register_buffer", "gds_deregister_buffer"), _DISK),
}
"""Public names that are refused, by the module that defines them, and why."""

_PREFIXES = ("_cuda_", "_nccl_", "_gds_")


def refusals() -> Iterator[tuple[Any, str, Any]]:
    """Yield (owner, name, stand-in) for each name that is refused, wherever PyTorch shows it."""
    shown: Any = importlib.import_module("torch.cuda")
    for module, names in REFUSED.items():
        try:
            owner = importlib.import_module(module)
        except ImportError:  # newer or older than this release
            continue
        for name, why in names.items():
            original = vars(owner).get(name)
            if original is None:
                continue
            stand_in = _refusing(f"{module}.{name}", original, why)
            yield owner, name, stand_in
            if owner is not shown and vars(shown).get(name) is original:
                yield shown, name, stand_in


@functools.cache
def _refusing(name: str, original: Any, why: str) -> Any:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise UnsupportedOpError(f"{name}: {why}; run this on a real one")

    if not isinstance(original, type):
        stand_in: Any = functools.update_wrapper(refuse, original)
        stand_in.__wrapped__ = getattr(original, "__wrapped__", original)  # the compiler looks it up
        return stand_in
    ways_in = {
        name: staticmethod(refuse)
        for name, value in vars(original).items()
        if isinstance(value, (staticmethod, classmethod)) and not name.startswith("_")
    }
    body = {**ways_in, "__new__": refuse, "__module__": original.__module__, "__doc__": original.__doc__}
    return type(original)(original.__name__, (original,), body)


def _no_name() -> None:
    """Stand for a function of `torch._C` that only a build for CUDA has."""


@functools.cache
def unanswered() -> dict[str, Any]:
    """Return refusals for the functions of `torch._C`, by name, that would ask for CUDA's driver.

    They come before the stand-ins, which take the names of those that have an answer.
    """
    names = (name for name, value in vars(torch._C).items() if name.startswith(_PREFIXES) and callable(value))
    graphs = {"_graph_pool_handle": _refusing("torch.cuda.graph_pool_handle", _no_name, _GRAPHS)}
    return {name: missing_function(name) for name in names} | graphs


def missing_function(name: str) -> Any:
    """Stand in for `torch._C.__getattr__`: what only a build for CUDA has is refused when it is called."""
    if not name.startswith(_PREFIXES):
        raise AttributeError(f"module 'torch._C' has no attribute {name!r}")

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise UnsupportedOpError(
            f"torch._C.{name}: a virtual GPU has no CUDA runtime to ask; run this on a real one"
        )

    return refuse

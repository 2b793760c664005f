"""`torch.cuda`'s questions about memory: statistics and limits.

Blocks and bytes are counted as the caching allocator counts them, but nothing is cached: reserved memory is
allocated memory, and each block is a segment, as with a real GPU's cache turned off. Pools and
totals are counted from the first question on. Snapshots and the history of allocations are refused by name.
"""

from typing import Any

import torch

from dpdemo.virtual.accounts import Statistic
from dpdemo.virtual.applying import stands_in
from dpdemo.virtual.patches.cuda_devices import cuda_runtime
from dpdemo.virtual.state import Session, the_session


@cuda_runtime("_accelerator_getMemoryInfo")
def memory_info(index: int | None = None) -> tuple[int, int]:
    """Return the free and the total bytes of GPU `index`."""
    session = the_session()
    index = session.current.index if index is None else session.check_ordinal(index)
    total = session.total_bytes(index)
    return max(0, total - session.ledger.live[index]), total


@stands_in(torch.cuda, "mem_get_info", why="it asks the CUDA runtime itself")
@stands_in(torch.cuda.memory, "mem_get_info", why="it asks the CUDA runtime itself")
def _mem_get_info(device: Any = None) -> tuple[int, int]:
    torch.cuda._lazy_init()  # type: ignore[no-untyped-call]
    return memory_info(torch.cuda._utils._get_device_index(device, optional=True))


@stands_in(torch.cuda, "device_memory_used", why="it asks NVIDIA's driver")
def _device_memory_used(device: Any = None) -> int:
    return the_session().ledger.live[torch.cuda._utils._get_device_index(device, optional=True)]


@cuda_runtime("_cuda_getMemoryFraction")
def _get_memory_fraction(index: int) -> float:
    return the_session().ledger.fractions.get(index, (1.0, 0))[0]


@cuda_runtime("_cuda_setMemoryFraction")
def _set_memory_fraction(fraction: float, index: int) -> None:
    session = the_session()
    total = session.total_bytes(index)
    session.ledger.fractions[index] = fraction, total
    session.ledger.allow(index, int(fraction * total))


@cuda_runtime("_cuda_memoryStats", "_accelerator_getDeviceStats")
def _memory_stats(index: int) -> dict[str, Any]:
    """Return the nested statistics that `torch.cuda.memory_stats` flattens."""
    session = _session_with(index)
    pools, num_ooms = session.ledger.open_accounts().gpus[index].pools, session.ledger.num_ooms[index]
    pools["all"].bytes.peak = session.ledger.peak[index]  # followed from the start
    blocks = {name: vars(pool.blocks) for name, pool in pools.items()}
    held = {name: vars(pool.bytes) for name, pool in pools.items()}
    none = dict.fromkeys(pools, vars(Statistic()))
    kinds = ("allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes")
    return {
        **dict.fromkeys(kinds, held),
        **dict.fromkeys(("allocation", "active", "segment"), blocks),
        **dict.fromkeys(("inactive_split", "inactive_split_bytes"), none),
        "num_alloc_retries": num_ooms,  # PyTorch tries again after it has emptied the cache
        "num_ooms": num_ooms,
        "num_sync_all_streams": 0,
        "num_device_alloc": blocks["all"]["allocated"],
        "num_device_free": blocks["all"]["freed"],
        "max_split_size": -1,
        "oversize_allocations": none["all"],
        "oversize_segments": none["all"],
    }


@cuda_runtime("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")
def _reset_peak_stats(index: int) -> None:
    _session_with(index).ledger.reset_peak(index)


@cuda_runtime("_cuda_resetAccumulatedMemoryStats", "_accelerator_resetAccumulatedStats")
def _reset_accumulated_stats(index: int) -> None:
    _session_with(index).ledger.reset_totals(index)


def _session_with(index: int) -> Session:
    """Return the session if it has GPU `index`; the allocator's error differs from the runtime's."""
    session = the_session()
    if not 0 <= index < session.num_gpus:
        raise RuntimeError(f"Invalid device argument {index}: did you call init?")
    return session

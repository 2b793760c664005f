"""`torch.cuda`'s questions about memory: statistics, limits, snapshots and the history of allocations.

Blocks and bytes are counted as the caching allocator counts them, but nothing is cached: reserved memory is
allocated memory, and each block is a segment, as with a real GPU's cache turned off. Pools and
totals are counted from the first question on. A program that asks for the history has a recorder from then on
(`recorder.py`), which takes over the blocks that are live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.accounts import Pool, live_allocations
from dpdemo.virtual.applying import stands_in
from dpdemo.virtual.patches.cuda_devices import cuda_runtime
from dpdemo.virtual.recorder import Recorder
from dpdemo.virtual.snapshot import Snapshot, snapshot_of
from dpdemo.virtual.state import Session, the_session

if TYPE_CHECKING:
    Counts = dict[str, int]


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


@cuda_runtime("_cuda_attach_out_of_memory_observer")
def _attach_observer(observer: Any) -> None:
    """Call `observer` with (GPU, bytes asked for, bytes in all, bytes free) before an out-of-memory error."""
    the_session().ledger.observers.append(observer)


@cuda_runtime("_cuda_memoryStats", "_accelerator_getDeviceStats")
def _memory_stats(index: int) -> dict[str, Any]:
    """Return the nested statistics that `torch.cuda.memory_stats` flattens."""
    session = _session_with(index)
    gpu, num_ooms = session.ledger.open_accounts().gpus[index], session.ledger.num_ooms[index]
    small, large = gpu.pools
    blocks = _statistic(_blocks(small), _blocks(large), gpu.most_blocks)
    held = _statistic(_bytes(small), _bytes(large), session.ledger.peak[index])
    none = _statistic(_blocks(Pool()), _blocks(Pool()), 0)
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


def _statistic(small: Counts, large: Counts, peak: int) -> dict[str, Counts]:
    both = {name: small[name] + large[name] for name in small}
    return {"all": {**both, "peak": peak}, "small_pool": small, "large_pool": large}


def _blocks(pool: Pool) -> Counts:
    allocated = pool.num + pool.num_freed - pool.carried
    return {"current": pool.num, "peak": pool.most, "allocated": allocated, "freed": pool.num_freed}


def _bytes(pool: Pool) -> Counts:
    held, freed = pool.num_bytes, pool.bytes_freed
    allocated = held + freed - pool.carried_bytes
    return {"current": held, "peak": pool.most_bytes, "allocated": allocated, "freed": freed}


@cuda_runtime("_cuda_memorySnapshot")
def _memory_snapshot(pool: object = None) -> Snapshot:  # noqa: ARG001
    accounts = the_session().ledger.open_accounts()
    return snapshot_of(accounts.recorder or _recorder_of_live_blocks())


def _recorder_of_live_blocks() -> Recorder:
    ledger = the_session().ledger
    recorder = Recorder(ledger.num_gpus)
    for allocation in live_allocations(ledger):
        if allocation.nbytes:
            recorder.adopt(allocation.index, allocation.birth, allocation.nbytes)
    return recorder


@cuda_runtime("_cuda_record_memory_history")
def _record_history(enabled: object = "all", context: object = "all", *args: object) -> None:
    """Start to record allocations, or stop (None), as `torch.cuda.memory._record_memory_history` asks."""
    accounts = the_session().ledger.open_accounts()
    if accounts.recorder is not None and not accounts.recorder.is_programs:
        return  # a prediction records this program, and keeps what it needs
    if not enabled:
        accounts.recorder = None
        return
    recorder = _recorder_of_live_blocks()
    recorder.is_programs = True
    recorder.keeps_events, recorder.keeps_frames = True, context is not None
    numbers = [arg for arg in args if isinstance(arg, int) and not isinstance(arg, bool)]
    recorder.max_events = numbers[0] if numbers else None
    recorder.forget_events()
    accounts.recorder = recorder


@cuda_runtime("_cuda_isHistoryEnabled")
def _is_history_kept() -> bool:
    accounts = the_session().ledger.accounts
    recorder = None if accounts is None else accounts.recorder
    return recorder is not None and recorder.is_programs

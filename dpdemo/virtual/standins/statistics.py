"""What `torch.cuda.memory_stats` says: blocks and bytes, as the caching allocator counts them.

Nothing is kept for later here: what is reserved is what is allocated, and each block is a segment of its own,
as with a real GPU's cache turned off. Pools and totals are counted from the first question on. (A block is
active as long as it is allocated: there is one stream.)
"""

from __future__ import annotations

from typing import Any

from dpdemo.virtual.accounts import Pool
from dpdemo.virtual.state import Session, the_session

Counts = dict[str, int]


def memory_stats(index: int) -> dict[str, Any]:
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
        "num_alloc_retries": num_ooms,  # each tried again, once the cache was given back
        "num_ooms": num_ooms,
        "num_sync_all_streams": 0,
        "num_device_alloc": blocks["all"]["allocated"],
        "num_device_free": blocks["all"]["freed"],
        "max_split_size": -1,
        "oversize_allocations": none["all"],
        "oversize_segments": none["all"],
    }


def reset_peak_stats(index: int) -> None:
    """Let the peaks start again from what is live."""
    _session_with(index).ledger.reset_peak(index)


def reset_accumulated_stats(index: int) -> None:
    """Let the running totals start again from zero."""
    _session_with(index).ledger.reset_totals(index)


def _session_with(index: int) -> Session:
    """Return the session if it has GPU `index`; the allocator's words where it has not are its own."""
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

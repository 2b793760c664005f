"""`torch.cuda.memory_snapshot` and the memory history: what lies on the GPUs, and what happened there.

A program that asks for the history has a recorder from then on, which follows the caching allocator of each
GPU (`recorder.py`); what lay there before is taken over.
"""

from __future__ import annotations

import torch

from dpdemo.virtual.accounts import live_allocations
from dpdemo.virtual.labels import stamp
from dpdemo.virtual.recorder import Recorder
from dpdemo.virtual.snapshot import Snapshot, snapshot_of
from dpdemo.virtual.state import the_session

_raw: dict[int, torch.Tensor] = {}  # what `caching_allocator_alloc` handed out, by address


def memory_snapshot(pool: object = None) -> Snapshot:  # noqa: ARG001
    """Return what `torch.cuda.memory._snapshot` does: the segments that are there, and what happened."""
    accounts = the_session().ledger.open_accounts()
    return snapshot_of(accounts.recorder or _recorder_of_what_is_there())


def _recorder_of_what_is_there() -> Recorder:
    ledger = the_session().ledger
    recorder = Recorder(ledger.num_gpus)
    for allocation in filter(lambda one: one.nbytes, live_allocations(ledger)):
        recorder.adopt(allocation.index, allocation.birth, allocation.nbytes)
    return recorder


def record_history(enabled: object = "all", context: object = "all", *args: object) -> None:
    """Begin to note what is allocated and freed, or end it (None), as `_record_memory_history` asks for."""
    accounts = the_session().ledger.open_accounts()
    if accounts.recorder is not None and not accounts.recorder.is_programs:
        return  # a prediction follows this program, and keeps what it needs
    if not enabled:
        accounts.recorder = None
        return
    recorder = _recorder_of_what_is_there()
    recorder.is_programs = True
    recorder.keeps_events, recorder.keeps_frames = True, context is not None
    numbers = [arg for arg in args if isinstance(arg, int) and not isinstance(arg, bool)]
    recorder.max_events = numbers[0] if numbers else None
    recorder.forget_events()
    accounts.recorder = recorder


def allocate_raw(size: int, stream: int) -> int:  # noqa: ARG001
    """Take `size` bytes on the current GPU, and return where they are."""
    session = the_session()
    with torch._C._DisableTorchDispatch():
        block = torch.ops.aten.empty.memory_format([size], dtype=torch.uint8, device=torch.device("cpu"))
    stamp(block, session, session.current.index)
    address: int = block.data_ptr()
    _raw[address] = block
    return address


def free_raw(address: int) -> None:
    """Give back what `allocate_raw` took."""
    _raw.pop(address, None)

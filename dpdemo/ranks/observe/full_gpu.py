"""Note what a GPU without room for more holds: the parts of the strategy, and the user's largest tensors."""

import re
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from dpdemo.models.frames import is_users
from dpdemo.ranks.observe.notes import Notes, never_raises, short
from dpdemo.sizes import size
from dpdemo.virtual.accounts import live_allocations
from dpdemo.virtual.blocks import KIND_NAMES, Kind
from dpdemo.virtual.kinds import noting_blocks
from dpdemo.virtual.state import the_session

_GPU = re.compile(r"\bGPU (\d+) has a total capacity")
_MOST_NAMED, _LEAST_SHARE = 3, 0.05
_held: dict[int, Counter[int]] = {}
"""By GPU, the bytes of each kind when it last had no room."""


def watch(notes: Notes) -> None:
    """Count what a GPU holds each time that it has no room for more."""

    def follow(module: Any) -> None:
        @notes.around(module.FSDPParam, "init_all_gather_outputs", why="it gathers a block")
        def gather(run: Any, /, *args: Any, **kwargs: Any) -> None:
            noting_blocks(run)(*args, **kwargs)

    notes.when_imported("torch.distributed.fsdp._fully_shard._fsdp_param", follow)
    ledger = the_session().ledger
    ledger.when_full = never_raises(_count)
    notes.until_end.callback(setattr, ledger, "when_full", None)


def _count(index: int) -> None:
    held: Counter[int] = Counter()
    for each in live_allocations(the_session().ledger):
        if each.index == index:
            held[each.kind] += each.nbytes
    # until a backward pass begins, nothing tells one from the other
    held[Kind.ACTIVATION] += held.pop(Kind.TEMPORARY, 0)
    _held[index] = held


def lines(error: BaseException) -> list[str]:
    """Describe what the GPU of an out-of-memory error held, by purpose, and the largest of the user's."""
    found = _GPU.search(str(error)) if isinstance(error, torch.OutOfMemoryError) else None
    held = _held.get(int(found[1])) if found else None
    if found is None or not held:
        return []
    index, whole = int(found[1]), sum(held.values())
    parts = [f"{_name(kind)} {size(num_bytes)}" for kind, num_bytes in held.most_common() if num_bytes]
    told = [f"cuda:{index} held {size(whole)}: {', '.join(parts)}"]
    named = [text for num_bytes, text in _variables(error, index) if num_bytes > _LEAST_SHARE * whole]
    return told + ([f"Largest variables: {', '.join(named[:_MOST_NAMED])}"] if named else [])


def _name(kind: int) -> str:
    return "activations and temporaries" if kind == Kind.ACTIVATION else KIND_NAMES[kind]


def _variables(error: BaseException, index: int) -> list[tuple[int, str]]:
    """List the tensors on a GPU that variables of the user's frames hold, the largest first."""
    found: dict[int, tuple[int, str]] = {}
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not is_users(frame.f_code.co_filename):
            continue
        at = f"{short(frame.f_code.co_filename)}:{line}"
        for name, tensor in _tensors(frame.f_locals, index):
            storage = tensor.untyped_storage()
            dtype = str(tensor.dtype).removeprefix("torch.")
            text = f"`{name}` {[*tensor.shape]} {dtype} ({size(storage.nbytes())}) at {at}"
            found.setdefault(storage._cdata, (storage.nbytes(), text))
    return sorted(found.values(), reverse=True)


def _tensors(variables: dict[str, Any], index: int) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in variables.items():
        if type(value) is torch.Tensor and value.device == torch.device("cuda", index):
            yield name, value

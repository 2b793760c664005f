"""Observe which keys `load_state_dict` took, and lines that put tensors on the GPU of another rank."""

import os
import sys
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist

from dpdemo.ranks.events import HomeGpu, OnOtherGpu, StateLoaded
from dpdemo.ranks.observe.notes import NOWHERE, Notes, never_raises, users_line
from dpdemo.virtual.labels import flat_tensors, gpu_of
from dpdemo.virtual.ledger import Ledger
from dpdemo.virtual.ops.collectives import Call

_PREFIXES = (
    *("_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module.", "model."),
    *("_fsdp_wrapped_module.", "_checkpoint_wrapped_module."),
)
_MAX_KEYS, _MAX_LINES = 2, 8


class LoadNotes:
    """Notes the states that modules take, and where tensors go."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.home: int | None = None  # the GPU whose tensors the rank gave to a collective last
        self.lines: set[tuple[str, int]] = set()

    @never_raises
    def loaded(self, given: set[str], missing: set[str], unexpected: set[str]) -> None:
        """Note how many keys of a state a module took."""
        if not given or not dist.is_initialized():
            return
        taken = given - unexpected
        at = users_line()
        left = (*sorted(unexpected)[:_MAX_KEYS], *sorted(missing)[:_MAX_KEYS])
        prefix = _prefix(unexpected, missing)
        wanted = len(taken) + len(missing)
        self.notes.write(
            StateLoaded(at, self.notes.number(StateLoaded, at), len(taken), len(given), wanted, prefix, left)
        )

    @never_raises
    def allocated(self, index: int, num_bytes: int) -> None:
        """Note a line that put more on a GPU than it held before, if it may be another rank's."""
        if not num_bytes or str(index) == os.environ.get("LOCAL_RANK") or len(self.lines) >= _MAX_LINES:
            return
        at = users_line()
        if at != NOWHERE and (at, index) not in self.lines:
            self.lines.add((at, index))
            self.notes.write(OnOtherGpu(at, index, num_bytes, "torch.load" if _is_loading() else ""))

    @never_raises
    def collective(self, call: Call) -> None:
        """Remember the GPU of a collective's tensors: NCCL gives each rank one."""
        tensor = next(iter(flat_tensors(call.args)), None)
        if tensor is not None and call.name != "barrier":
            index = gpu_of(tensor)
            self.home = self.home if index is None else index

    def end(self) -> None:
        """Note the rank's own GPU."""
        if self.home is not None:
            self.notes.write(HomeGpu(self.home))


def _prefix(unexpected: set[str], missing: set[str]) -> str:
    """Return the words without which most of the keys that were left out fit; none if few do."""
    found = Counter[str]()
    for words in _PREFIXES:
        of_state = {key.replace(words, "", 1) for key in unexpected} & missing
        of_module = {key.replace(words, "", 1) for key in missing} & unexpected
        found[words] = max(len(of_state), len(of_module))
    words, count = found.most_common(1)[0]
    return words if 2 * count >= min(len(unexpected), len(missing)) > 0 else ""


def _is_loading() -> bool:
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == torch.serialization.__file__:
            return True
        frame = frame.f_back
    return False


def watch(notes: Notes) -> LoadNotes:
    """Look at what this process loads; the result listens to collectives."""
    found = LoadNotes(notes)

    @notes.around(torch.nn.Module, "load_state_dict", why="keys are left out")
    def load(run: Any, self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        result = run(self, state_dict, *args, **kwargs)
        if isinstance(result, tuple) and len(result) == 2:  # missing and unexpected keys
            found.loaded(set(state_dict), *map(set, result))
        return result

    @notes.around(Ledger, "allocate", why="a line puts tensors on another rank's GPU")
    def allocate(run: Any, self: Any, allocation: Any, live: int, nbytes: int) -> Any:
        result = run(self, allocation, live, nbytes)
        found.allocated(allocation.index, nbytes)
        return result

    return found

"""Observe which keys `load_state_dict` took, and lines that put tensors on the GPU of another rank."""

import contextlib
import os
import sys
import weakref
import zlib
from collections import Counter
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves

from dpdemo.ranks.events import HomeGpu, OnOtherGpu, StateLoaded
from dpdemo.ranks.observe.models import parameters_of
from dpdemo.ranks.observe.notes import NOWHERE, Notes, never_raises, users_line
from dpdemo.ranks.observe.numbers import total
from dpdemo.ranks.observe.training import TrainingNotes
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

    def __init__(self, notes: Notes, training: TrainingNotes) -> None:
        self.notes, self.training = notes, training
        self.home: int | None = None  # the GPU whose tensors the rank gave to a collective last
        self.lines: set[tuple[str, int]] = set()
        self.reads_in_place = False  # whether `torch.distributed.checkpoint.load` was called
        self.gave: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
        """By module: the optimizer steps made before its last `state_dict()`, and a checksum of that."""

    @never_raises
    def loaded(self, module: Any, state: Any, missing: set[str], unexpected: set[str], is_own: bool) -> None:
        """Note how many keys of a state a module took."""
        given = set(state)
        if not given or not dist.is_initialized():
            return
        taken = given - unexpected
        left = (*sorted(unexpected)[:_MAX_KEYS], *sorted(missing)[:_MAX_KEYS])
        prefix, wanted = _prefix(unexpected, missing), len(taken) + len(missing)
        event = StateLoaded("", 0, len(taken), len(given), wanted, prefix, left, is_own=is_own)
        self._note(event, list(module.parameters()), state)

    @never_raises
    def restored(self, optimizer: Any, state: dict[str, Any]) -> None:
        """Note that an optimizer took a state."""
        number = len(state["state"])
        if dist.is_initialized() and number:
            event = StateLoaded("", 0, number, number, number, is_optimizers=True)
            self._note(event, parameters_of(optimizer), state)

    @never_raises
    def gives(self, module: Any, state: Any) -> None:
        """Remember what a module's own state holds."""
        self.gave[module] = self.training.steps, _checksum(state)

    def is_in_vain(self, module: Any, state: Any) -> bool:
        """Return whether a state has a module's own tensors alone, and nothing filled them in place."""
        if self.reads_in_place or not _is_own(module, state):
            return False
        step, found = self.gave.get(module, (-1, 0))
        return step != self.training.steps or found == _checksum(state)

    def _note(self, event: StateLoaded, parameters: list[Any], state: Any) -> None:
        at = users_line()
        number = self.notes.number(StateLoaded, at)
        given = {id(each) for each in parameters}
        model = next((each.name for each in self.training.models if given & each.parameters.keys()), "")
        step = self.training.steps
        self.notes.write(replace(event, at=at, number=number, of=model, step=step, sum=_checksum(state)))

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


def _checksum(state: Any) -> int:
    tensors = [total(each) for each in tree_leaves(state) if isinstance(each, torch.Tensor)]
    return zlib.crc32(repr(tensors).encode())


def _is_own(module: Any, state: Any) -> bool:
    """Return whether a state has the module's own tensors alone, as `module.state_dict()` gives them."""
    own = {name: each.data_ptr() for name, each in (*module.named_parameters(), *module.named_buffers())}
    given = {name: each.data_ptr() for name, each in state.items() if isinstance(each, torch.Tensor)}
    return bool(given) and given.items() <= own.items() and any(given.values())


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


def watch(notes: Notes, training: TrainingNotes) -> LoadNotes:
    """Look at what this process loads; the result listens to collectives."""
    found = LoadNotes(notes, training)

    @notes.around(torch.nn.Module, "load_state_dict", why="keys are left out")
    def load(run: Any, /, self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        is_own = False
        with contextlib.suppress(Exception):
            is_own = found.is_in_vain(self, state_dict)
        result = run(self, state_dict, *args, **kwargs)
        if isinstance(result, tuple) and len(result) == 2:  # missing and unexpected keys
            found.loaded(self, state_dict, *map(set, result), is_own)
        return result

    @notes.around(torch.nn.Module, "state_dict", why="a module may be given its own tensors")
    def give(run: Any, /, self: Any, *args: Any, **kwargs: Any) -> Any:
        state = run(self, *args, **kwargs)
        if not args and kwargs.get("destination") is None:  # else a module inside is asked
            found.gives(self, state)
        return state

    def follow(module: Any) -> None:
        @notes.around(module, "_load_state_dict", why="it writes into the tensors of a state")
        def read(run: Any, /, *args: Any, **kwargs: Any) -> Any:
            found.reads_in_place = True
            return run(*args, **kwargs)

    notes.when_imported("torch.distributed.checkpoint.state_dict_loader", follow)

    @notes.around(torch.optim.Optimizer, "load_state_dict", why="an optimizer takes a state")
    def restore(run: Any, /, self: Any, state_dict: Any) -> None:
        run(self, state_dict)
        found.restored(self, state_dict)

    @notes.around(Ledger, "allocate", why="a line puts tensors on another rank's GPU")
    def allocate(run: Any, /, self: Any, allocation: Any, live: int, nbytes: int) -> Any:
        result = run(self, allocation, live, nbytes)
        found.allocated(allocation.index, nbytes)
        return result

    return found

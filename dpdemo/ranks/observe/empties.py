"""Observe parameters and buffers that have no values: `to_empty` gives them memory, and nothing fills it."""

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from dpdemo.ranks.events import Trap
from dpdemo.ranks.observe.models import parameters_of
from dpdemo.ranks.observe.notes import Notes, never_raises, users_line
from dpdemo.ranks.observe.numbers import checksum, is_plain, local
from dpdemo.virtual.applying import Patches
from dpdemo.virtual.ops.mode import VirtualGpuMode

_WHY = "what is written into shows which tensors have no values yet"
_MOST = 3


class Empties:
    """Tensors that `to_empty` made, until an operator writes into their memory.

    Operators are watched from `to_empty` to the first step that trains the module. Something else may fill
    the memory, so what has changed in it counts as filled, too.
    """

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.modules: list[tuple[weakref.ref[nn.Module], str]] = []
        self.sums: dict[int, int] = {}
        """By the memory's address, a checksum of what `to_empty` left there."""
        self.statistics: list[torch.Tensor] = []
        """The tensors without values that the running operator updates."""
        self.patches = Patches()
        notes.until_end.callback(self.patches.undo)

    @never_raises
    def began(self, module: nn.Module) -> None:
        """Remember the tensors of a module that has just been emptied."""
        if not self.modules:
            self._watch_operators()
        self.modules.append((weakref.ref(module), users_line()))
        for _, tensor in _tensors(module):
            self.sums[tensor.untyped_storage().data_ptr()] = checksum(tensor)

    def _watch_operators(self) -> None:
        before, after = self.writes, self.updated

        @self.patches.around(VirtualGpuMode, "__torch_dispatch__", why=_WHY)
        def dispatch(run: Any, /, self: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
            before(func, *args[1:], **kwargs)
            result = run(self, func, *args, **kwargs)
            after()
            return result

    @never_raises
    def writes(self, func: Any, args: Any = (), kwargs: Any = None) -> None:
        """Forget the memory that an operator writes into; any operand of a collective may be an output.

        Batch normalization mixes the batch's statistics with the old ones: these still have no values.
        """
        if "batch_norm" in str(func):
            operands = [each for each in (*args, *(kwargs or {}).values()) if isinstance(each, torch.Tensor)]
            self.statistics = [each for each in operands if is_plain(each) and self._is_empty(each)]
            return
        schema = getattr(func, "_schema", None)
        is_collective = getattr(func, "namespace", "") == "c10d"
        if schema is None or not (schema.is_mutable or is_collective):
            return
        for place, spec in enumerate(schema.arguments):
            if is_collective or (spec.alias_info is not None and spec.alias_info.is_write):
                given = args[place] if place < len(args) else (kwargs or {}).get(spec.name)
                for tensor in torch.utils._pytree.tree_leaves(given):
                    if isinstance(tensor, torch.Tensor) and is_plain(tensor):
                        self.sums.pop(tensor.untyped_storage().data_ptr(), None)

    @never_raises
    def updated(self) -> None:
        """Take what batch normalization has made of tensors without values for no values either."""
        while self.statistics:
            tensor = self.statistics.pop()
            self.sums[tensor.untyped_storage().data_ptr()] = checksum(tensor)

    def _is_empty(self, tensor: torch.Tensor) -> bool:
        known = self.sums.get(tensor.untyped_storage().data_ptr())
        return known is not None and known == checksum(tensor)

    @never_raises
    def steps(self, optimizer: Any) -> None:
        """Note what has no values at the first step of a module that was emptied."""
        if not self.modules:
            return
        given = {id(each) for each in parameters_of(optimizer)}
        for each in list(self.modules):
            module = each[0]()
            own = {id(parameter) for parameter in module.parameters()} if module is not None else set()
            if module is not None and given & own:
                self._note(module, each[1])
            if not own or given & own:  # FSDP1 may keep all in a flat parameter of its own
                self.modules.remove(each)
        if not self.modules:
            self.patches.undo()
            self.sums.clear()

    def _note(self, module: nn.Module, at: str) -> None:
        names = [name for name, tensor in _tensors(module) if self._is_empty(tensor)]
        if names:
            more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
            self.notes.write(Trap("no-values", at, ", ".join(names[:_MOST]) + more))


def _tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for named in (module.named_parameters(), module.named_buffers()):
        for name, each in named:
            tensor = local(each)
            if is_plain(tensor) and tensor.numel():
                yield name, tensor


def watch(notes: Notes) -> None:
    """Follow the modules that this process empties."""
    found = Empties(notes)

    @notes.around(nn.Module, "to_empty", why="its tensors have memory, and no values")
    def emptied(run: Any, /, self: Any, *args: Any, **kwargs: Any) -> Any:
        result = run(self, *args, **kwargs)
        found.began(self)
        return result

    notes.hooked(register_optimizer_step_pre_hook(lambda optimizer, *_: found.steps(optimizer)))

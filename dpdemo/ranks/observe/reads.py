"""Observe the numbers of tensors that the program reads on the host: `item()`, `float()`, `if tensor`."""

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from dpdemo.models.frames import OURS, is_users
from dpdemo.ranks.events import Read
from dpdemo.ranks.observe.notes import Notes, never_raises, users_line
from dpdemo.ranks.observe.numbers import is_checked
from dpdemo.virtual.applying import Patch
from dpdemo.virtual.ops import listening

_ALWAYS = 64
_OPERATOR = torch.ops.aten._local_scalar_dense.default


class ReadNotes:
    """Counts the reads of each line, and notes the first of them."""

    def __init__(self, notes: Notes, collectives: Callable[[], int]) -> None:
        self.notes, self.collectives = notes, collectives
        self.counts: dict[tuple[Any, int], int] = {}
        self.is_partial = False  # whether a DTensor that is yet to be reduced is about to be read

    def of_dtensor(self, args: tuple[Any, ...], _: dict[str, Any]) -> None:
        """Look whether a DTensor is yet to be reduced, before its own part is read."""
        placements = getattr(args[0], "placements", ())
        self.is_partial = any(each.is_partial() for each in placements)

    @never_raises
    def read(self, _: torch.Tensor, result: Any) -> None:
        """Note a number that a line of the program read, or a library's; PyTorch's own only of a DTensor."""
        is_partial, self.is_partial = self.is_partial, False
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(OURS):
            frame = frame.f_back
        if frame is None or not (is_partial or is_users(frame.f_code.co_filename)):
            return
        key = frame.f_code, frame.f_lineno
        number = self.counts[key] = self.counts.get(key, 0) + 1
        if (number > _ALWAYS and not is_checked(number)) or not dist.is_initialized():
            return
        if isinstance(result, (int, float)):
            at, how = users_line(frame), type(result).__name__
            is_training = torch.is_grad_enabled()
            self.notes.write(
                Read(at, number, float(result), self.collectives(), how, is_training, is_partial)
            )


def watch(notes: Notes, collectives: Callable[[], int]) -> None:
    """Note the numbers that this process reads."""
    found = ReadNotes(notes, collectives)
    notes.listen(listening.reads, found.read)
    why = "the number of a DTensor may be that of one rank"
    notes.patches.apply(Patch(listening.wrapped, id(_OPERATOR), found.of_dtensor, why))

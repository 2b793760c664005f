"""Observe the numbers of tensors that the program reads: `item()`, `float()`, `if`, `tolist()`, `numpy()`."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from dpdemo.models.frames import is_users
from dpdemo.ranks.events import Read
from dpdemo.ranks.observe.notes import Notes, frame_below, never_raises, users_line
from dpdemo.ranks.observe.numbers import checksum, is_checked, value
from dpdemo.virtual.applying import Patch
from dpdemo.virtual.ops import listening

_ALWAYS, _MAX_BYTES = 64, 1 << 14
_OPERATOR = torch.ops.aten._local_scalar_dense.default


class ReadNotes:
    """Notes the first numbers that each line reads."""

    def __init__(self, notes: Notes, collectives: Callable[[], int]) -> None:
        self.notes, self.collectives = notes, collectives
        self.is_pending = False  # whether a DTensor that is yet to be reduced is about to be read

    def of_dtensor(self, args: tuple[Any, ...], _: dict[str, Any]) -> None:
        """Look whether a DTensor is yet to be reduced, before its own part is read."""
        self.is_pending = any(each.is_partial() for each in getattr(args[0], "placements", ()))

    @never_raises
    def read(self, _: torch.Tensor, result: Any) -> None:
        """Note a number that a line of the program read, or a library's; PyTorch's own only of a DTensor."""
        is_partial, self.is_pending = self.is_pending, False
        if isinstance(result, (int, float)):
            number = float(result), type(result).__name__
            self._note(frame_below(), lambda: number, is_partial=is_partial)

    @never_raises
    def converted(self, tensor: torch.Tensor, frame: FrameType) -> None:
        """Note that a line made a list or an array of a tensor."""
        if not tensor.is_complex():
            self._note(frame, lambda: _of_several(tensor))

    def _note(
        self, frame: FrameType | None, number_of: Callable[[], tuple[float, str]], *, is_partial: bool = False
    ) -> None:
        if frame is None or not (is_partial or is_users(frame.f_code.co_filename)):
            return
        number = self.notes.number(Read, (frame.f_code, frame.f_lineno))
        if (number > _ALWAYS and not is_checked(number)) or not dist.is_initialized():
            return
        at, (found, how), is_training = users_line(frame), number_of(), torch.is_grad_enabled()
        self.notes.write(Read(at, number, found, self.collectives(), how, is_training, is_partial))


def _of_several(tensor: torch.Tensor) -> tuple[float, str]:
    """Return the one number of a tensor, or a checksum of several."""
    if tensor.numel() > 1:
        return float(checksum(tensor, 0, _MAX_BYTES)), "numbers"
    return value(tensor), "float"


def watch(notes: Notes, collectives: Callable[[], int]) -> None:
    """Note the numbers that this process reads."""
    found = ReadNotes(notes, collectives)
    notes.listen(listening.reads, found.read)
    why = "the number of a DTensor may be that of one rank"
    notes.patches.apply(Patch(listening.wrapped, id(_OPERATOR), found.of_dtensor, why))
    for name in ("numpy", "tolist"):

        @notes.around(torch.Tensor, name, why="the program makes a list or an array of a tensor")
        def converted(convert: Any, /, self: Any, *args: Any, **kwargs: Any) -> Any:
            result = convert(self, *args, **kwargs)
            found.converted(self, sys._getframe(2))  # an observer's own lists are none of the program's
            return result

"""Observe the numbers of tensors that the program reads: `item()`, `float()`, `if`, `tolist()`, `numpy()`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from dpdemo.models.frames import OURS, is_users
from dpdemo.ranks.events import Read
from dpdemo.ranks.observe.notes import around, never_raises, users_line
from dpdemo.ranks.observe.numbers import checksum, is_checked, value
from dpdemo.virtual.ops import listening

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpdemo.ranks.observe.notes import Notes

_ALWAYS, _MAX_BYTES = 64, 1 << 14
_OPERATOR = torch.ops.aten._local_scalar_dense.default


class ReadNotes:
    """Counts the reads of each line, and notes the first of them."""

    def __init__(self, notes: Notes, collectives: Callable[[], int]) -> None:
        self.notes, self.collectives = notes, collectives
        self.counts: dict[tuple[Any, int], int] = {}
        self.is_partial = False
        """Whether a DTensor that is yet to be reduced is about to be read."""

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
        if isinstance(result, (int, float)):
            self._note(frame, lambda: (float(result), type(result).__name__), is_partial=is_partial)

    @never_raises
    def converted(self, tensor: torch.Tensor, frame: Any) -> None:
        """Note that a line made a list or an array of a tensor: its one number, or a checksum of several."""
        if not tensor.is_complex():
            several = tensor.numel() > 1
            self._note(
                frame,
                lambda: (
                    float(checksum(tensor, 0, _MAX_BYTES)) if several else value(tensor),
                    "numbers" if several else "float",
                ),
            )

    def _note(
        self, frame: Any, number_of: Callable[[], tuple[float, str]], *, is_partial: bool = False
    ) -> None:
        if frame is None or not (is_partial or is_users(frame.f_code.co_filename)):
            return
        key = frame.f_code, frame.f_lineno
        number = self.counts[key] = self.counts.get(key, 0) + 1
        if (number > _ALWAYS and not is_checked(number)) or not dist.is_initialized():
            return
        at, (found, how) = users_line(frame), number_of()
        is_training = torch.is_grad_enabled()
        self.notes.write(Read(at, number, found, self.collectives(), how, is_training, is_partial))


def watch(notes: Notes, collectives: Callable[[], int]) -> None:
    """Note the numbers that this process reads."""
    found = ReadNotes(notes, collectives)
    listening.reads.append(found.read)
    listening.wrapped[id(_OPERATOR)] = found.of_dtensor
    for name in ("numpy", "tolist"):

        @around(torch.Tensor, name)
        def converted(convert: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
            result = convert(self, *args, **kwargs)
            found.converted(self, sys._getframe(2))  # an observer's own lists are none of the program's
            return result

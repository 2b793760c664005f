"""Observe the numbers of tensors that the program reads on the host: `item()`, `float()`, `if tensor`."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from dpdemo.models.frames import is_users
from dpdemo.ranks.events import Read
from dpdemo.ranks.observe.notes import Notes, frame_below, never_raises, users_line
from dpdemo.ranks.observe.numbers import is_checked
from dpdemo.virtual.applying import Patch
from dpdemo.virtual.ops import listening

_ALWAYS = 64
_OPERATOR = torch.ops.aten._local_scalar_dense.default


def watch(notes: Notes, collectives: Callable[[], int]) -> None:
    """Note the first numbers that each line of this process reads."""
    is_pending = False  # whether a DTensor that is yet to be reduced is about to be read

    def of_dtensor(args: tuple[Any, ...], _: dict[str, Any]) -> None:
        nonlocal is_pending
        is_pending = any(each.is_partial() for each in getattr(args[0], "placements", ()))

    @never_raises
    def read(_: torch.Tensor, result: Any) -> None:
        nonlocal is_pending
        is_partial, is_pending = is_pending, False
        frame = frame_below()  # a line of the program or of a library; PyTorch's own only of a DTensor
        if frame is None or not (is_partial or is_users(frame.f_code.co_filename)):
            return
        number = notes.number(Read, (frame.f_code, frame.f_lineno))
        if (number > _ALWAYS and not is_checked(number)) or not dist.is_initialized():
            return
        if isinstance(result, (int, float)):
            at, how, is_training = users_line(frame), type(result).__name__, torch.is_grad_enabled()
            notes.write(Read(at, number, float(result), collectives(), how, is_training, is_partial))

    notes.listen(listening.reads, read)
    why = "the number of a DTensor may be that of one rank"
    notes.patches.apply(Patch(listening.wrapped, id(_OPERATOR), of_dtensor, why))

"""Observe the random numbers that lines of the program draw themselves, and not layers such as Dropout."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from dpdemo.models.frames import is_installed, is_users
from dpdemo.ranks.events import Drawn
from dpdemo.ranks.observe.notes import Notes, frame_below, never_raises, users_line
from dpdemo.ranks.observe.numbers import checksum
from dpdemo.virtual.ops import listening

_MAX_NOTED, _MAX_BYTES = 16, 1 << 14


def watch(notes: Notes, steps: Callable[[], int]) -> None:
    """Note the first draws of each line; `steps` counts this process's optimizer steps."""

    @never_raises
    def drawn(func: Any, result: Any) -> None:
        frame = frame_below()
        if frame is None or not steps():  # what comes before training are weights and data
            return
        name = frame.f_code.co_filename
        if not is_users(name) or is_installed(name) or not dist.is_initialized():
            return
        number = notes.number(Drawn, (frame.f_code, frame.f_lineno))
        if number > _MAX_NOTED or not isinstance(result, torch.Tensor) or not result.dim():
            return
        if torch._C._current_graph_task_id() < 0:
            operator = func._schema.name.removeprefix("aten::").rstrip("_")
            total, shape = checksum(result, 0, _MAX_BYTES), tuple(map(int, result.shape))
            notes.write(Drawn(users_line(frame), number, total, steps(), operator, shape))

    notes.listen(listening.draws, drawn)

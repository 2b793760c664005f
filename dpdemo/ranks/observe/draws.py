"""Observe the random numbers that lines of the program draw themselves, and not layers such as Dropout."""

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from dpdemo.models.frames import OURS, is_installed, is_users
from dpdemo.ranks.events import Drawn
from dpdemo.ranks.observe.notes import Notes, never_raises, users_line
from dpdemo.ranks.observe.numbers import checksum
from dpdemo.virtual.ops import listening

_MAX_NOTED, _MAX_BYTES = 16, 1 << 14


class DrawNotes:
    """Notes the first draws of each line."""

    def __init__(self, notes: Notes, steps: Callable[[], int]) -> None:
        self.notes, self.steps = notes, steps
        self.numbers: Counter[tuple[Any, int]] = Counter()

    @never_raises
    def drawn(self, func: Any, result: Any) -> None:
        """Note a draw, once training has begun: what comes before are weights and data."""
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(OURS):
            frame = frame.f_back
        if frame is None or not self.steps():
            return
        name = frame.f_code.co_filename
        if not is_users(name) or is_installed(name) or not dist.is_initialized():
            return
        key = frame.f_code, frame.f_lineno
        self.numbers[key] += 1
        if self.numbers[key] > _MAX_NOTED or not isinstance(result, torch.Tensor) or not result.dim():
            return
        if torch._C._current_graph_task_id() < 0:
            operator = func._schema.name.removeprefix("aten::").rstrip("_")
            total = checksum(result, 0, _MAX_BYTES)
            shape = tuple(map(int, result.shape))
            self.notes.write(
                Drawn(users_line(frame), self.numbers[key], total, self.steps(), operator, shape)
            )


def watch(notes: Notes, steps: Callable[[], int]) -> None:
    """Look at the draws of this process; `steps` counts its optimizer steps."""
    notes.listen(listening.draws, DrawNotes(notes, steps).drawn)

"""Readers of numbers that are not known, and need not be refused.

`torch._check_tensor_all` does nothing but raise: it is taken to pass, as it does in a step that goes well.
What an optimizer reads in its step (Adafactor the size of an update) scales that update, whose shape is
known: a 1 will do there.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from types import FrameType


def number_for_reader(reader: str) -> float | None:
    """Return a number that will do for the caller of the method `reader` of a tensor, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("dpdemo.virtual"):
        frame = frame.f_back
    if frame is None or reader not in {"item", "__float__"}:
        return None
    if frame.f_code is torch._check_tensor_all_with.__code__:
        return True
    while frame is not None:
        if frame.f_code.co_name == "step" and isinstance(frame.f_locals.get("self"), torch.optim.Optimizer):
            return 1.0
        frame = frame.f_back
    return None

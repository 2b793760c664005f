"""A warning's line: the program's, where a function of ours stands between it and PyTorch's."""

import sys
import warnings
from pathlib import Path
from typing import Any

from dpdemo.virtual.applying import stands_in

_ROOMS = ("virtual", "calls", "ranks", "programs")
_BETWEEN = tuple(f"{Path(__file__).parents[2] / room}/" for room in _ROOMS)
"""The rooms whose functions stand between a program and PyTorch."""


@stands_in(warnings, why="a warning would name the line at which a function of ours calls PyTorch's")
class WarningMessage(warnings.WarningMessage):
    """A warning as Python shows or records it."""

    def __init__(
        self, message: Any, category: Any, filename: str, lineno: int, *args: Any, **more: Any
    ) -> None:
        if filename.startswith(_BETWEEN):
            filename, lineno = _line_of_caller(filename, lineno)
        super().__init__(message, category, filename, lineno, *args, **more)


def _line_of_caller(filename: str, lineno: int) -> tuple[str, int]:
    """Return the line that called ours, whose place is given; this place itself if only ours are there."""
    frame = sys._getframe(2)
    while frame is not None and (frame.f_code.co_filename, frame.f_lineno) != (filename, lineno):
        frame = frame.f_back  # type: ignore[assignment]
    while frame is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame = frame.f_back  # type: ignore[assignment]
    return (filename, lineno) if frame is None else (frame.f_code.co_filename, frame.f_lineno)

"""Whose code a frame runs: the user's own, a library's, or ours. Needs no torch."""

import os
import re
import sys
import traceback
from functools import cache
from types import TracebackType

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # noqa: PTH100, PTH120 - text
_EXAMPLES = os.path.join(OURS, "examples") + os.sep  # noqa: PTH118 - text
_EMULATION = os.path.join(OURS, "virtual") + os.sep  # noqa: PTH118 - text
_PATCHES = os.path.join(_EMULATION, "applying.py")  # noqa: PTH118 - text
_FRAME_IN_TEXT = re.compile(r'^  File "([^"]+)".*\n(?:    .*\n)*', re.MULTILINE)


def is_watchers(filename: str) -> bool:
    """Return whether a file is ours but not of the emulation: its frames are left out of tracebacks."""
    is_emulation = filename.startswith((_EMULATION, _EXAMPLES)) and filename != _PATCHES
    return filename.startswith(OURS) and not is_emulation


def is_users(filename: str) -> bool:
    """Return whether a file is neither PyTorch's, ours nor Python's own; our examples count as a user's."""
    return _is_users(filename, getattr(sys.modules.get("torch"), "__file__", None))


@cache
def _is_users(filename: str, torch_file: str | None) -> bool:
    if filename.startswith(_EXAMPLES):
        return True
    torchs = () if torch_file is None else (os.path.dirname(torch_file) + os.sep,)  # noqa: PTH120 - text
    if filename.startswith(("<frozen", OURS, *torchs)):
        return False
    pythons_own = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120 - text
    return not filename.startswith(pythons_own) or is_installed(filename)


def is_installed(filename: str) -> bool:
    """Return whether a file belongs to an installed package, and so is not the user's to change."""
    return "-packages" in filename


def users_frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    """List the user's lines of a traceback, innermost last."""
    return [frame for frame in traceback.extract_tb(trace) if is_users(frame.filename)]


def without_watchers(text: str) -> str:
    """Leave our frames, but for the emulation's, out of a traceback that was written as text."""
    return _FRAME_IN_TEXT.sub(lambda found: "" if is_watchers(found[1]) else found[0], text)

"""Whose code a frame runs: the user's own, a library's, or ours. Needs no torch."""

import os
import re
import sys
import traceback
from functools import cache
from types import TracebackType

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # noqa: PTH100, PTH120 - text
_EXAMPLES = os.path.join(OURS, "examples") + os.sep  # noqa: PTH118 - text
_BUGS = AssertionError, AttributeError, KeyError, NameError, RecursionError
"""Mistakes in our own code; PyTorch raises RuntimeError, TypeError, ValueError or IndexError."""
_FRAME_IN_TEXT = re.compile(r'^  File "([^"]+)".*\n(?:    .*\n)*', re.MULTILINE)


def is_ours(filename: str) -> bool:
    """Return whether a file is ours: its frames are left out of tracebacks. Examples are a user's."""
    return filename.startswith(OURS) and not filename.startswith(_EXAMPLES)


def is_our_bug(error: BaseException) -> bool:
    """Return whether the error looks like a mistake in our own code, whose frames have to be shown."""
    deepest = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)][-1:]
    return isinstance(error, _BUGS) and any(map(is_ours, deepest))


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


def without_ours(text: str) -> str:
    """Leave our frames out of a traceback that was written as text."""
    return _FRAME_IN_TEXT.sub(lambda found: "" if is_ours(found[1]) else found[0], text)


def hide_ours(error: BaseException) -> None:
    """Take our frames out of a traceback that is the message of an error, as `parallel_apply` writes it."""
    if error.args and isinstance(error.args[0], str):
        text = error.args[0]
        clean = without_ours(text)
        if clean != text:
            error.args = (type(text)(clean), *error.args[1:])

"""What a user needs to see of an exception in their own code: the replica it happened in, and their frames.

DataParallel re-raises a replica's exception with "Caught X in replica i on device d" and the original
traceback as text (`torch/_utils.py`, ExceptionWrapper); anything else carries its traceback as usual.
"""

import os
import re
import sys
import traceback
from dataclasses import dataclass

_CAUGHT = re.compile(
    r"Caught (?P<type>[\w.]+) in replica (?P<replica>\d+) on device (?P<device>[\w:]+)\.\n(?P<traceback>.*)",
    re.DOTALL,
)
_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)\n(?P<code>    .+\n)?')


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception taken apart; `replica` and `device` are None where it was not in a replica."""

    type: str
    message: str
    replica: int | None
    device: str | None
    frames: tuple[str, ...]

    def __str__(self) -> str:
        where = "" if self.replica is None else f" in replica {self.replica} on device {self.device}"
        return f"{self.type}{where}: {self.message}" + "".join(f"\n{frame}" for frame in self.frames)


def take_apart(error: BaseException) -> Failure:
    """Find an exception's type, message, replica and the user's own frames."""
    caught = _CAUGHT.search(str(error))
    if caught is None:
        return Failure(type(error).__name__, str(error) or "(no message)", None, None, _own_frames(error))
    text = caught["traceback"]
    frames = tuple(
        _frame(found["file"], int(found["line"]), found["function"], (found["code"] or "").strip())
        for found in _FRAME.finditer(text)
        if not _is_library(found["file"])
    )
    last = [found.end() for found in _FRAME.finditer(text)]
    message = re.sub(r"\A(?:\s*[\^~]+\s*\n)?[\w.]+(?:: )?", "", text[last[-1] if last else 0 :]).strip()
    return Failure(
        caught["type"], message or "(no message)", int(caught["replica"]), caught["device"], frames
    )


def user_frames(error: BaseException) -> str:
    """Write the user's own frames of an exception, one below the other, for the end of a message."""
    return "".join(f"\n{frame}" for frame in take_apart(error).frames)


def _own_frames(error: BaseException) -> tuple[str, ...]:
    frames = traceback.extract_tb(error.__traceback__)
    return tuple(
        _frame(frame.filename, frame.lineno or 0, frame.name, frame.line or "")
        for frame in frames
        if not _is_library(frame.filename)
    )


def _is_library(filename: str) -> bool:
    packages = [sys.modules[name] for name in ("torch", "dpdemo") if name in sys.modules]
    folders = [os.path.dirname(str(package.__file__)) + os.sep for package in packages]  # noqa: PTH120 - text
    return filename.startswith(("<frozen ", *folders))


def _frame(filename: str, line: int, function: str, code: str) -> str:
    return f"  {filename}:{line} in {function}" + (f"\n    {code}" if code else "")

"""Exceptions of the user's code: the replica that raised, and the user's own frames.

DataParallel re-raises a replica's exception with "Caught X in replica i on device d" and the original
traceback as text (`torch/_utils.py`, ExceptionWrapper); anything else carries its traceback as usual.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dpdemo.errors import RunError
from dpdemo.models.frames import is_users, users_frames
from dpdemo.wording import first_line

_CAUGHT = re.compile(
    r"Caught (?P<type>[\w.]+) in replica (?P<replica>\d+) on device (?P<device>[\w:]+)\.\n(?P<traceback>.*)",
    re.DOTALL,
)
_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)\n(?P<code>    .+\n)?')


class ModelExit(Exception):  # noqa: N818 - SystemExit has no such name either
    """Replaces a BaseException such as SystemExit, under its name and with its traceback."""


@contextmanager
def users_code() -> Iterator[None]:
    """Call the user's code in a `with` block: all that it raises, but for Ctrl-C, is an Exception outside.

    A model that calls `sys.exit(0)` has not succeeded, and one that raises asyncio's CancelledError must not
    end this program either.

    Raises:
        Stopped: in place of SystemExit and its like; exceptions are let through.

    """
    try:
        yield
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - users raise what they like
        raise as_exception(error) from None


def as_exception(error: BaseException) -> Exception:
    """Convert a BaseException into an Exception of the same name, message and traceback."""
    kind = type(type(error).__name__, (ModelExit,), {"__module__": type(error).__module__})
    stands_for: Exception = kind(str(error))
    return stands_for.with_traceback(error.__traceback__)


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
        if is_users(found["file"])
    )
    last = [found.end() for found in _FRAME.finditer(text)]
    message = re.sub(r"\A(?:\s*[\^~]+\s*\n)?[\w.]+(?:: )?", "", text[last[-1] if last else 0 :]).strip()
    return Failure(
        caught["type"], message or "(no message)", int(caught["replica"]), caught["device"], frames
    )


def user_frames(error: BaseException) -> str:
    """Format the user's frames of an exception, a line each, for the end of a message."""
    return "".join(f"\n{frame}" for frame in take_apart(error).frames)


@contextmanager
def memory_told(what: str) -> Iterator[None]:
    """Convert "out of memory" of Python, PyTorch's CPU allocator or CUDA into an error with a hint.

    Raises:
        RunError: in place of those; every other exception is let through.

    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        told = out_of_memory(error, what)
        if told is None:
            raise
        raise told from error


def out_of_memory(error: Exception, what: str) -> RunError | None:
    """Return the error for too little memory; None for any other exception."""
    if not _is_out_of_memory(error):
        return None
    return RunError(
        f"expected enough memory to {what}, got {type(error).__name__}: {first_line(str(error))}",
        hint="choose smaller sizes; `dpdemo simulate` and `dpdemo memory` need no memory for any of them",
    )


def _is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out; PyTorch's CPU allocator says so in words alone (CPUAllocator.cpp)."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    words = ("can't allocate memory", "not enough memory", "Storage size calculation overflowed")
    return any(word in str(error) for word in words)


def _own_frames(error: BaseException) -> tuple[str, ...]:
    return tuple(
        _frame(frame.filename, frame.lineno or 0, frame.name, frame.line or "")
        for frame in users_frames(error.__traceback__)
    )


def _frame(filename: str, line: int, function: str, code: str) -> str:
    return f"  {filename}:{line} in {function}" + (f"\n    {code}" if code else "")

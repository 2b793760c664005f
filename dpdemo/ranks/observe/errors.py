"""Note the error that ends a rank, and leave its traceback to the launcher, who prints each error once."""

import contextlib
import os
import re
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

from dpdemo.models.advice import advice
from dpdemo.models.frames import is_installed, is_our_bug, users_frames, without_ours
from dpdemo.ranks.events import Failure
from dpdemo.ranks.observe import full_gpu
from dpdemo.ranks.observe.notes import NOWHERE, Notes, short
from dpdemo.virtual.applying import Wrap

_LOST = re.compile(
    r"Connection (closed|reset|refused|was)|(recvValue|sendBytes) failed|Broken pipe|[Ff]ailed to recv"
    r"|(Read|Write) error|Timed out waiting|[Ww]ait timeout|gloo/transport|Socket (Timeout|closed)"
)
_MAX_TEXT = 400


def is_lost(error: BaseException) -> bool:
    """Return whether an error only tells that the connection to another rank broke."""
    return isinstance(error, RuntimeError) and bool(_LOST.search(str(error)))


def watch(notes: Notes, hints: Callable[[BaseException], list[str]], *, is_launched: bool) -> None:
    """Note an exception that nobody catches, in the program or in the function of a process."""

    def note(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> bool:
        """Return whether the launcher prints the traceback."""
        users = [frame for frame in users_frames(trace) if not is_installed(frame.filename)] or users_frames(
            trace
        )
        text = None
        if is_launched and not issubclass(kind, KeyboardInterrupt):
            text = "".join(traceback.format_exception(kind, error, trace))
            text = text if is_our_bug(error) else without_ours(text)
        found: list[str] = []
        with contextlib.suppress(Exception):
            found = [*full_gpu.lines(error), *(hints(error) or advice(error, is_of_rank=True))]
        failure = Failure(
            text=first_lines(kind, error),
            at=f"{short(users[-1].filename)}:{users[-1].lineno}" if users else NOWHERE,
            is_lost=is_lost(error),
            hints=tuple(found),
            t=time.time(),
            traceback=text,
        )
        return notes.write(failure) and text is not None

    @notes.around(sys, "excepthook", why="a rank ends by an exception")
    def excepthook(before: Any, /, *args: Any, **kwargs: Any) -> None:  # a program's own has any names
        if not note(*args, **kwargs):
            before(*args, **kwargs)

    _noters[os.getpid()] = note


_noters: dict[int, Callable[..., object]] = {}
"""By process, how it notes an error; one that is forked is none of ours until it joins a process group."""


def watch_processes(around: Callable[..., Wrap]) -> None:
    """Also note an exception that ends the function of a process, in this one or one forked from it."""

    @around(BaseProcess, "run", why="a rank that is a function ends by an exception")
    def noted_run(run: Any, /, self: BaseProcess) -> None:
        try:
            run(self)
        except BaseException as error:
            # mp.spawn catches the error of a rank, and leaves by sys.exit(1)
            cause = error.__context__ if isinstance(error, SystemExit) and error.code else error
            note = _noters.get(os.getpid())
            if note is not None and isinstance(cause, Exception):
                note(type(cause), cause, cause.__traceback__)
            raise


def first_lines(kind: type[BaseException], error: BaseException) -> str:
    """Return an error's type and the beginning of its text, in one line."""
    text = " ".join(str(error).partition("CUDA kernel errors might be")[0].split())
    return f"{kind.__name__}: {text[:_MAX_TEXT]}{'…' * (len(text) > _MAX_TEXT)}"

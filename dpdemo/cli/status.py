"""A line on stderr that says what is under way: only on a terminal, only after the first second."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE_SECONDS = 1.0
_CLEAR = "\r\x1b[2K"


@contextmanager
def status_line(*, quiet: bool, doing: str = "checking") -> Iterator[Callable[[str], None] | None]:
    """Give a function to call with what is under way, or None where nobody would see it.

    `doing` says what the command is doing all the while.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    line = _Line(doing)
    thread = threading.Thread(target=line.show, daemon=True)
    thread.start()
    try:
        yield line.say
    finally:
        line.ended.set()
        thread.join()


class _Line:
    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.text = ""
        self.ended = threading.Event()

    def say(self, text: str) -> None:
        self.text = text

    def show(self) -> None:
        """Write the text again whenever it has changed, until the end."""
        shown, wait = "", _PATIENCE_SECONDS
        while not self.ended.wait(wait):
            wait = 0.1
            if self.text != shown:
                shown = self.text
                sys.stderr.write(f"{_CLEAR}{self.doing}: {shown}"[:76])
                sys.stderr.flush()
        if shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()

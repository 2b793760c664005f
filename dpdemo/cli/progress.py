"""The status line on stderr: only on a terminal, only after the first second."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from dpdemo.wording import fit, printable

Text = str | Callable[[], str]
"""A text, or a function that makes it if it is ever shown."""
Show = Callable[[Text], None]
_PATIENCE_SECONDS = 1.0
_CLEAR = "\r\x1b[2K"
_WIDTH = 76
_BAR = 30


@contextmanager
def status_line(*, quiet: bool, doing: str = "checking") -> Iterator[Show | None]:
    """Yield a function that shows a text behind `doing`, or None if nobody would see it."""
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


@contextmanager
def progress_bar(*, quiet: bool, doing: str = "batches") -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that takes (done, in all), or None if nobody would see a bar."""
    started = time.monotonic()
    with status_line(quiet=quiet, doing=doing) as say:
        yield None if say is None else lambda done, total: say(partial(_bar, started, done, total))


def _bar(started: float, done: int, total: int) -> str:
    left = (time.monotonic() - started) * (total - done) / max(done, 1)
    minutes, seconds = divmod(round(left), 60)
    return f"{'=' * (_BAR * done // total):<{_BAR}} {done}/{total}, {minutes}:{seconds:02} left"


class _Line:
    def __init__(self, doing: str) -> None:
        self.doing = doing
        self.text: Text = ""
        self.ended = threading.Event()

    def say(self, text: Text) -> None:
        self.text = text

    def show(self) -> None:
        """Write the text again whenever it has changed, until the end."""
        shown: Text = ""
        wait = _PATIENCE_SECONDS
        while not self.ended.wait(wait):
            wait = 0.1
            if self.text != shown:
                shown = self.text
                text = shown if isinstance(shown, str) else shown()
                line = printable(f"{self.doing}: {text}")[:_WIDTH]
                sys.stderr.write(_CLEAR + fit(line, sys.stderr.encoding))
                sys.stderr.flush()
        if shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()

"""The progress bar: on stderr, only on a terminal, only for what takes longer than a second."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dpdemo.cli.options import Settings

_PATIENCE_SECONDS = 1.0


@contextmanager
def progress_bar(settings: Settings) -> Iterator[Callable[[int, int], None] | None]:
    """Give a function to call with (done, in all), or None where nobody would see a bar."""
    if settings.quiet or not sys.stderr.isatty():
        yield None
        return
    bar = _Bar()
    try:
        yield bar.update
    finally:
        bar.close()


class _Bar:
    """A Rich bar that is built when the first second is over."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._close: Callable[[], None] | None = None
        self._set: Callable[[int], None] | None = None

    def update(self, done: int, total: int) -> None:
        if self._set is None:
            if time.monotonic() - self._started < _PATIENCE_SECONDS:
                return
            self._open(total)
        assert self._set is not None  # noqa: S101 - opened above
        self._set(done)

    def _open(self, total: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from dpdemo.render import make_console

        columns = (TextColumn("batches"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        progress = Progress(*columns, console=make_console(stderr=True), transient=True)
        task = progress.add_task("batches", total=total)
        progress.start()
        self._set = lambda done: progress.update(task, completed=done)
        self._close = progress.stop

    def close(self) -> None:
        if self._close is not None:
            self._close()

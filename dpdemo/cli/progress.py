"""The status line and the progress bar on stderr: only on a terminal, and gone at the end."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dpdemo.wording import printable

Show = Callable[[str], None]


@contextmanager
def status_line(*, quiet: bool, doing: str) -> Iterator[Show | None]:
    """Yield a function that shows a text behind `doing`, or None if nobody would see it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import SpinnerColumn, TextColumn

    with _progress(SpinnerColumn(), TextColumn("{task.description}", markup=False)) as update:
        yield lambda text: update(description=f"{doing}: {printable(text)}"[:76])


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that takes (done, in all) batches, or None if nobody would see a bar."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    columns = TextColumn("batches"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with _progress(*columns) as update:
        yield lambda done, total: update(completed=done, total=total)


@contextmanager
def _progress(*columns: Any) -> Iterator[Callable[..., None]]:
    """Yield a function that updates Rich's progress; its first call shows it."""
    from rich.console import Console
    from rich.progress import Progress

    # the user's code prints where it would print without the line
    progress = Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    task = progress.add_task("", total=None)

    def update(**fields: Any) -> None:
        progress.update(task, **fields)
        progress.start()

    try:
        yield update
    finally:
        progress.stop()

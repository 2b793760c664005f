"""Around torch's import and a user's code: Ctrl-C, dropped prints, and progress on a terminal's stderr."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from dpdemo.collecting import no_collections
from dpdemo.files import current_folder
from dpdemo.wording import printable


@contextlib.contextmanager
def loading_torch(*, hides_gpus: bool = False) -> Iterator[None]:
    """Import torch faster, and let Ctrl-C end the program meanwhile.

    Args:
        hides_gpus: hide real GPUs from torch, so that virtual ones can take their place. CUDA reads the
            variable once, when torch first asks it for devices.

    Raises:
        UsageError: in a folder that was deleted: there MKL ends the process at the first product of matrices.

    """
    current_folder()
    if hides_gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with no_collections(), _interrupts_end_the_program():
        yield


@contextlib.contextmanager
def _interrupts_end_the_program() -> Iterator[None]:
    """Exit at once on Ctrl-C: raised inside an import, a KeyboardInterrupt may be swallowed there."""
    try:
        before = signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    except ValueError:  # not in the main thread: the program that runs us there handles its own signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def users_code(*, quiet: bool, doing: str) -> Iterator[Callable[[str], None] | None]:
    """Drop what a user's code prints, which would bury the report.

    Yield a function that shows a text behind `doing` in a status line, or None if nobody would see it.
    """

    def columns(rich: ModuleType) -> tuple[Any, ...]:
        return rich.SpinnerColumn(), rich.TextColumn("{task.description}", markup=False)

    with (
        _progress(columns, quiet=quiet) as update,
        Path(os.devnull).open("w") as sink,
        contextlib.redirect_stdout(sink),
    ):
        yield update and (lambda text: update(description=f"{doing}: {printable(text)}"[:76]))


@contextlib.contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function that takes (done, in all) batches, or None if nobody would see a bar."""

    def columns(rich: ModuleType) -> tuple[Any, ...]:
        return "batches", rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn()

    with _progress(columns, quiet=quiet) as update:
        yield update and (lambda done, total: update(completed=done, total=total))


@contextlib.contextmanager
def _progress(
    columns: Callable[[ModuleType], tuple[Any, ...]], *, quiet: bool
) -> Iterator[Callable[..., None] | None]:
    """Yield a function that updates Rich's progress, whose first call shows it; None if nobody would."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich import progress as rich
    from rich.console import Console

    # the user's code prints where it would print without the line
    progress = rich.Progress(
        *columns(rich),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    task = progress.add_task("", total=None)

    def whole(change: Callable[[], None]) -> None:
        """Start or stop without Ctrl-C in between: Rich cannot stop what is half started."""
        from dpdemo.virtual.uninterrupted import uninterrupted  # torch is there when something makes progress

        with uninterrupted():
            change()

    def update(**fields: Any) -> None:
        progress.update(task, **fields)
        whole(progress.start)

    try:
        yield update
    finally:
        if progress.live.is_started:
            whole(progress.stop)

"""Preparations before torch is imported and before a user's code runs."""

import contextlib
import importlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from dpdemo.cli.progress import Show, status_line
from dpdemo.collecting import no_collections
from dpdemo.files import current_folder


@contextlib.contextmanager
def users_code(*modules: str, quiet: bool, doing: str) -> Iterator[Show | None]:
    """Run a user's code in the block: on no real GPU, its stdout dropped, with a status line on a terminal.

    Args:
        modules: imported first, since they load torch.
        quiet: without the status line.
        doing: the beginning of the status line.

    """
    with (
        status_line(quiet=quiet, doing=doing) as say,
        Path(os.devnull).open("w") as sink,
        contextlib.redirect_stdout(sink),  # the model's prints in each of its runs would bury the report
    ):
        with loading_torch(hides_gpus=True):
            for module in modules:
                importlib.import_module(module)
        yield say


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

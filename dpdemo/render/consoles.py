"""The consoles that a command writes to."""

import errno
import os
import sys
from typing import NoReturn

from rich.console import Console

PIPE_WIDTH = 80


class PipedConsole(Console):
    """A console that leaves a closed pipe to its caller, as a plain file does."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise the error that Rich has caught, and would turn into exit code 1 on its own."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def on_stream(*, stderr: bool) -> Console:
    """Make a console on stdout or stderr.

    Rich takes the width of whatever terminal it can find, even when the output goes into a pipe; what a
    program reads should not depend on how wide the user's window happens to be.
    """
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return PipedConsole(stderr=stderr, width=width, highlight=False)

"""Streams: how wide they are, which signs they can carry, and whether they show colours."""

import errno
import os
import sys
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Any

from dpdemo.results.table import Block, Canvas, Line, lay_out, plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

PIPE_WIDTH = 80
_HEIGHT = 25
OFF_THE_PAGE: dict[str, Any] = {"force_jupyter": False}
"""In a notebook Rich shows whatever is printed, to a file too, in the cell: ours goes where it should."""
_DIGITS = 4
"""A number of columns has no more: a million of them would be a line of a million blanks."""


def make_console(*, stderr: bool = False) -> "Console":
    """Make a console on stdout or stderr that leaves a closed pipe to its caller, as a plain file does.

    Rich takes the width of whatever terminal it can find, even when the output goes into a pipe, and believes
    COLUMNS=0; what a program reads should not depend on how wide the user's window happens to be.
    """
    from rich.console import Console

    class PipedConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    stream = sys.stderr if stderr else sys.stdout
    # with a height of its own it does not ask the environment for a size
    return PipedConsole(
        stderr=stderr, width=width_of(stream), height=_HEIGHT, highlight=False, **OFF_THE_PAGE
    )


def width_of(stream: IO[str]) -> int:
    """Return how many columns a stream shows: 80 in a pipe, unless COLUMNS says otherwise."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isascii() and asked.isdecimal() and int(asked[:_DIGITS]) > 0:
        return int(asked[:_DIGITS])
    try:
        return (stream.isatty() and os.get_terminal_size(stream.fileno()).columns) or PIPE_WIDTH
    except (OSError, ValueError):  # a stream without a file behind it
        return PIPE_WIDTH


def canvas_of(stream: IO[str], width: int | None = None) -> Canvas:
    """Return the canvas of a stream, in its own width unless another is named."""
    return Canvas(width or width_of(stream), encoding=getattr(stream, "encoding", None) or "utf-8")


def write_lines(lines: Iterable[Line], stream: IO[str]) -> None:
    """Write lines to a stream: plain, or in colour where Rich finds that the stream shows colours."""
    if not _may_show_colours(stream):
        for line in lines:
            stream.write(f"{plain(line)}\n")
        return
    console = make_console(stderr=stream is sys.stderr)
    for line in lines:
        console.print(as_rich(line), soft_wrap=True)


def write_blocks(blocks: Iterable[Block]) -> None:
    """Write blocks to stdout."""
    write_lines(lay_out(blocks, canvas_of(sys.stdout)), sys.stdout)


def _may_show_colours(stream: IO[str]) -> bool:
    """Return whether it pays to load Rich, which then decides."""
    if stream not in {sys.stdout, sys.stderr}:
        return False
    return stream.isatty() or any(map(os.environ.get, ("FORCE_COLOR", "TTY_COMPATIBLE")))


def as_rich(line: Line) -> "Text":
    """Make a line for Rich."""
    from rich.text import Text

    return Text.assemble(*line, no_wrap=True, overflow="ignore")

"""Where text meets a stream: consoles, the characters that a stream can carry, and parts of pictures."""

import errno
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, Any, Literal, NoReturn

from rich.box import Box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from dpdemo.wording import fit, is_unicode, printable

PIPE_WIDTH = 80
_HEIGHT = 25
OFF_THE_PAGE: dict[str, Any] = {"force_jupyter": False}
"""In a notebook Rich shows whatever is printed, to a file too, in the cell: ours goes where it should."""
GAP = 2
"""Blanks between columns."""
ASCII_HEAD = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
"""A line below the heads of columns, in plain signs."""


class PipedConsole(Console):
    """A console that leaves a closed pipe to its caller, as a plain file does."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise the error that Rich has caught, and would turn into exit code 1 on its own."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def on_stream(*, stderr: bool) -> Console:
    """Make a console on stdout or stderr.

    Rich takes the width of whatever terminal it can find, even when the output goes into a pipe, and believes
    COLUMNS=0; what a program reads should not depend on how wide the user's window happens to be.
    """
    stream = sys.stderr if stderr else sys.stdout
    # with a height of its own it does not ask the environment for a size
    return PipedConsole(stderr=stderr, width=_width(stream), height=_HEIGHT, highlight=False, **OFF_THE_PAGE)


def _width(stream: IO[str]) -> int:
    asked = os.environ.get("COLUMNS", "")
    if asked.isascii() and asked.isdecimal() and int(asked[:_DIGITS]) > 0:
        return int(asked[:_DIGITS])
    try:
        return (stream.isatty() and os.get_terminal_size(stream.fileno()).columns) or PIPE_WIDTH
    except (OSError, ValueError):  # a stream without a file behind it
        return PIPE_WIDTH


_DIGITS = 4
"""A number of columns has no more: a million of them would be a line of a million blanks."""


def write_pieces(pieces: Iterable[str], file: IO[str], encoding: str) -> None:
    """Write exact text, piece by piece, in the characters that a stream can carry."""
    file.writelines(fit(piece, encoding) for piece in pieces)


@dataclass(frozen=True, slots=True)
class Canvas:
    """What a picture is drawn for: so many columns, and the characters of an encoding."""

    width: int
    encoding: str

    @property
    def is_ascii(self) -> bool:
        """Whether a picture has to do without blocks and fine signs."""
        return not is_unicode(self.encoding)

    def text(self, *lines: str, style: str = "") -> Text:
        """Make a text of lines, whatever a user's names in them hold: nothing steers the terminal."""
        return Text("\n".join(self.fit(printable(line)) for line in lines), style)

    def fit(self, text: str) -> str:
        """Make text of our own writable."""
        return fit(text, self.encoding)


def grid(*columns: int | Literal["keep", "fold", "right"], gap: int = GAP) -> Table:
    """Make a table without lines: columns of a width, kept on one line, folded, or set to the right."""
    table = Table.grid(padding=(0, gap, 0, 0), pad_edge=False)
    for column in columns:
        options: dict[Any, Any] = {"overflow": "fold"} if column == "fold" else {"no_wrap": True}
        if isinstance(column, int):
            options["width"] = column
        table.add_column(**options, justify="right" if column == "right" else "left")
    return table


class Uncut:
    """A line that runs on past the width, so that a terminal can open its `file:line`; a picture folds it."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_console__(self, console: Console, _: ConsoleOptions) -> RenderResult:
        """Give the text with the wrapping that the console needs."""
        self._text.overflow = "fold" if console.record else "ignore"
        yield self._text


class Trimmed:
    """A renderable without the blanks that Rich pads its lines with: they would end up in every pipe."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render, then drop the blanks at the ends of lines."""
        for line in console.render_lines(self._renderable, options, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                text, style, _ = line.pop()
                line.append(Segment(text.rstrip(), style))
            yield from line
            yield Segment.line()

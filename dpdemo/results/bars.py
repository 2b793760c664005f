"""Bars: a device's share of the batch, where a full one is the chunk that all wait for; parts of a whole."""

from collections.abc import Iterable

from dpdemo.results.table import Line

FULL, SHORT, IDLE = "green", "yellow", "red"
"""The colour of the largest chunk, of a shorter one, and of a device without one; the text says so too."""
_HEADINGS = ("share of the largest chunk", "of the largest", "share")
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar_heading(width: int) -> str:
    """Head a column of bars."""
    return next((text for text in _HEADINGS if len(text) <= width), "")


def bar(rows: int, largest: int, width: int) -> Line:
    """Draw `rows` out of `largest` as a block in `width` cells, and the rest as shade.

    The shade is the time that the device spends waiting, so an idle one is all shade. A chunk with rows never
    looks idle, and only the largest looks full.
    """
    # whole numbers throughout: a chunk may have more rows than a float can tell apart
    full, rest = divmod(max(1, rows * width * 8 // largest) if rows else 0, 8)
    block = "█" * full + _EIGHTHS[rest].strip()
    style = FULL if rows == largest else SHORT if rows else IDLE
    return (block, style), ("░" * (width - len(block)), "dim" if rows else IDLE)


def lettered(parts: Iterable[tuple[str, str, float]], scale: float, width: int) -> Line:
    """Draw parts one after another, a piece for each cell: each part is a letter, a colour and an amount.

    `scale` would fill `width`. A part begins with its letter, so that it can be told without its colour.
    """
    cells: Line = ()
    total = 0.0
    for letter, colour, amount in parts:
        total += amount
        room = round(total * width / scale) - len(cells)
        if room > 0:
            cells += ((letter, f"black on {colour}"), *[("█", colour)] * (room - 1))
    return cells

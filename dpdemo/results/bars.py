"""A bar for a device's share of the batch: a full one is the chunk that all the others wait for."""

from dpdemo.results.table import Canvas, Line

FULL, SHORT, IDLE = "green", "yellow", "red"
"""The colour of the largest chunk, of a shorter one, and of a device without one; the text says so too."""
_HEADINGS = ("share of the largest chunk", "of the largest", "share")
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar_heading(width: int) -> str:
    """Head a column of bars."""
    return next((text for text in _HEADINGS if len(text) <= width), "")


def bar(rows: int, largest: int, width: int, canvas: Canvas) -> Line:
    """Draw `rows` out of `largest` as a block in `width` cells, and the rest as shade.

    The shade is the time that the device spends waiting, so an idle one is all shade. A chunk with rows never
    looks idle, and only the largest looks full.
    """
    # whole numbers throughout: a chunk may have more rows than a float can tell apart
    eighths = max(1, rows * width * 8 // largest) if rows else 0
    full, rest = divmod(eighths, 8)
    if canvas.is_ascii:
        full, rest = (max(1, full) if rows else 0), 0
    block = canvas.blocks(full) + _EIGHTHS[rest].strip()
    style = FULL if rows == largest else SHORT if rows else IDLE
    return (block, style), (canvas.shade(width - len(block)), "dim" if rows else IDLE)

"""A bar for a device's share of the batch: a full one is the chunk that all the others wait for."""

from rich.text import Text

FULL, SHORT, IDLE = "green", "yellow", "red"
"""The colour of the largest chunk, of a shorter one, and of a device without one; the text says so too."""
_HEADINGS = ("share of the largest chunk", "of the largest", "share")

_EIGHTHS = " ▏▎▍▌▋▊▉"


def heading(width: int) -> str:
    """Head a column of bars."""
    return next((text for text in _HEADINGS if len(text) <= width), "")


def style_of(rows: int, largest: int) -> str:
    """Give the colour of a device with so many rows."""
    return FULL if rows == largest else SHORT if rows else IDLE


def bar(rows: int, largest: int, width: int, *, ascii_only: bool) -> Text:
    """Draw `rows` out of `largest` as a block in `width` cells, and what is left of them as shade.

    The shade is what the device spends waiting, so an idle one is all shade. A chunk with rows never
    looks idle, and only the largest looks full.
    """
    # Whole numbers throughout: a chunk may have more rows than a float can tell apart.
    eighths = max(1, rows * width * 8 // largest) if rows else 0
    full, rest = divmod(eighths, 8)
    if ascii_only:
        full, rest = (max(1, full) if rows else 0), 0
    block = "#" * full if ascii_only else "█" * full + _EIGHTHS[rest].strip()
    shade = ("." if ascii_only else "░") * (width - len(block))
    return Text.assemble((block, style_of(rows, largest)), (shade, "dim" if rows else IDLE))

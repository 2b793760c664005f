"""A bar for a device's share of the batch: a full one is the chunk that all the others wait for."""

from rich.text import Text

COLOURS = ("cyan", "green", "magenta", "yellow", "blue")
"""One a device, in turn. Colour tells neighbours apart, and nothing else."""

_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(rows: int, largest: int, position: int, width: int, *, ascii_only: bool) -> Text:
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
    return Text.assemble((block, COLOURS[position % len(COLOURS)]), (shade, "dim"))

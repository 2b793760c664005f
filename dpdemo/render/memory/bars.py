"""A bar for what a GPU holds at its fullest moment: a segment per part, and where its capacity ends.

Each segment begins with the letter of its part, so that it is known without its colour: `P██G██A███████░░░┃`.
Shade is what is left; what stands behind the mark does not fit.
"""

import itertools
from collections.abc import Sequence

from rich.text import Text

from dpdemo.reports.memory import GpuMemory

LETTERS = ("P", "G", "S", "B", "I", "A", "R", "O", "T", "W", "C")
"""The letter of each of PARTS."""
STYLES = (
    *("bright_blue", "cyan", "magenta", "bright_green", "green", "yellow"),
    *("bright_cyan", "red", "white", "bright_black", "bright_red"),
)
"""The colour of each of PARTS, on which black can be read; it tells neighbours apart, and nothing else."""


def letter(part: int) -> Text:
    """Draw the letter of a part as it stands in the bars."""
    return Text(LETTERS[part], f"black on {STYLES[part]}")


def capacity_mark(*, ascii_only: bool) -> Text:
    """Draw the mark at which a GPU's capacity ends."""
    return Text("|" if ascii_only else "┃", "bold red")


def bar(gpu: GpuMemory, scale_bytes: int, width: int, *, ascii_only: bool) -> Text:
    """Draw a GPU's parts in `width` cells, of which `scale_bytes` would take all."""
    if gpu.capacity_bytes is None:
        return _segments(gpu.parts, scale_bytes, width, ascii_only=ascii_only)
    cells = width - 1  # the mark takes one
    drawn = _segments(gpu.parts, scale_bytes, cells, ascii_only=ascii_only)
    end = _cells(gpu.capacity_bytes, scale_bytes, cells)
    if gpu.peak_bytes <= gpu.capacity_bytes:
        drawn.append(("." if ascii_only else "░") * (end - len(drawn)), "dim")
    else:
        # however little is too much, it is to be seen behind the mark
        drawn = drawn or letter(gpu.parts.index(max(gpu.parts)))
        end = min(end, len(drawn) - 1)
    return drawn[:end] + capacity_mark(ascii_only=ascii_only) + drawn[end:]


def _segments(parts: Sequence[int], scale_bytes: int, cells: int, *, ascii_only: bool) -> Text:
    drawn = Text()
    ends = [_cells(total, scale_bytes, cells) for total in itertools.accumulate(parts)]
    for part, (start, end) in enumerate(itertools.pairwise([0, *ends])):
        if end > start:
            drawn.append_text(letter(part))
            drawn.append(("#" if ascii_only else "█") * (end - start - 1), STYLES[part])
    return drawn


def _cells(num_bytes: int, scale_bytes: int, cells: int) -> int:
    return (2 * num_bytes * cells + scale_bytes) // (2 * scale_bytes)  # the nearest

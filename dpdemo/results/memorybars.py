"""A bar for a GPU's fullest moment: a segment per part, and a mark where its capacity ends.

Each segment begins with the letter of its part, so that it is known without its colour: `P██G██A███████░░░┃`.
Shade is free memory; anything behind the mark does not fit.
"""

import itertools
from collections.abc import Iterator, Sequence

from dpdemo.results.memorydata import GpuMemory
from dpdemo.results.table import Canvas, Line, styled

LETTERS = ("P", "G", "S", "B", "I", "A", "R", "O", "T", "W", "C")
"""The letter of each of PARTS."""
STYLES = (
    *("bright_blue", "cyan", "magenta", "bright_green", "green", "yellow"),
    *("bright_cyan", "red", "white", "bright_black", "bright_red"),
)
"""The colour of each of PARTS, on which black can be read; it tells neighbours apart, and nothing else."""


def letter(part: int) -> Line:
    """Draw the letter of a part as in the bars."""
    return styled(LETTERS[part], f"black on {STYLES[part]}")


def capacity_mark(canvas: Canvas) -> Line:
    """Draw the mark at which a GPU's capacity ends."""
    return styled("|" if canvas.is_ascii else "┃", "bold red")


def bar(gpu: GpuMemory, scale_bytes: int, width: int, canvas: Canvas) -> Line:
    """Draw a GPU's parts in `width` cells, of which `scale_bytes` would take all."""
    if gpu.capacity_bytes is None:
        return tuple(_segments(gpu.parts, scale_bytes, width, canvas))
    cells = width - 1  # the mark takes one
    drawn = [*_segments(gpu.parts, scale_bytes, cells, canvas)]
    end = _cells(gpu.capacity_bytes, scale_bytes, cells)
    if gpu.peak_bytes <= gpu.capacity_bytes:
        drawn += [(canvas.shade(1), "dim")] * (end - len(drawn))
    else:
        # however little is too much, it shows behind the mark
        drawn = drawn or [*letter(gpu.parts.index(max(gpu.parts)))]
        end = min(end, len(drawn) - 1)
    return (*drawn[:end], *capacity_mark(canvas), *drawn[end:])


def _segments(
    parts: Sequence[int], scale_bytes: int, cells: int, canvas: Canvas
) -> Iterator[tuple[str, str]]:
    """Yield the cells of the parts, one by one."""
    ends = [_cells(total, scale_bytes, cells) for total in itertools.accumulate(parts)]
    for part, (start, end) in enumerate(itertools.pairwise([0, *ends])):
        if end > start:
            yield from letter(part)
            yield from [(canvas.blocks(1), STYLES[part])] * (end - start - 1)


def _cells(num_bytes: int, scale_bytes: int, cells: int) -> int:
    return (2 * num_bytes * cells + scale_bytes) // (2 * scale_bytes)  # the nearest

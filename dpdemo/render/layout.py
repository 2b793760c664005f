"""Which columns fit into a width: one decision for the whole report, so that all its tables line up.

From roomy to cramped: everything on one line; input and output on lines of their own; no bar; and at last
all of a device's facts below each other.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rich.cells import cell_len

from dpdemo.render.console import GAP

SHORTEST_BAR = 5


@dataclass(frozen=True, slots=True)
class Cells:
    """One line of a table as text: the tensors going in, none for an idle device, and those coming out."""

    label: str
    rows: str
    input: tuple[str, ...]
    output: tuple[str, ...]
    arrow: str
    count: int

    def on_one_line(self) -> str:
        """Write `[10, 5] → [10, 2]`."""
        return f"{', '.join(self.input)} {self.arrow} {', '.join(self.output)}" if self.input else ""

    def on_lines(self) -> tuple[str, ...]:
        """Write a line per tensor, with an arrow before the first that comes out."""
        if not self.input:
            return ()
        first, *others = self.output
        indent = " " * (cell_len(self.arrow) + 1)
        return (*self.input, f"{self.arrow} {first}", *(indent + other for other in others))


@dataclass(frozen=True, slots=True)
class Layout:
    """Widths of the columns; a bar of 0 is left out, `stacked` puts all into one column."""

    label: int
    rows: int
    shapes: int
    bar: int
    one_line: bool
    stacked: bool = False


def choose(cells: Iterable[Cells], heading: str, width: int) -> Layout:
    """Choose the roomiest layout in which nothing is wider than `width`."""
    label, rows, one, many = _widest(cells)
    room = width - label - rows - 2 * GAP
    for shapes, one_line in ((max(one, cell_len(heading)), True), (one, True), (many, False)):
        bar = room - shapes - GAP
        if bar >= SHORTEST_BAR:
            return Layout(label, rows, shapes, bar, one_line)
    for shapes, one_line in ((one, True), (many, False)):
        if shapes <= room:
            return Layout(label, rows, shapes, 0, one_line)
    return Layout(label, rows, width, 0, one_line=False, stacked=True)


def _widest(cells: Iterable[Cells]) -> tuple[int, int, int, int]:
    label, rows, one, many = cell_len("Outside"), len("rows"), len("output"), len("output")
    for cell in cells:
        label = max(label, cell_len(cell.label))
        rows = max(rows, cell_len(cell.rows))
        one = max(one, cell_len(cell.on_one_line()))
        many = max(many, *map(cell_len, cell.on_lines()), 0)
    return label, rows, one, many

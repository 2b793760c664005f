"""A GPU's memory over a step: a column for each span of moments, and the phases below them.

The columns are eight rows high. The line at the top is the peak, the dashes below are the phases, each with
its name where there is room, so that the picture can be read without colour.
"""

import itertools
from collections.abc import Iterator

from dpdemo.results.memorydata import GpuMemory, Moment
from dpdemo.results.table import Canvas, Line, styled
from dpdemo.sizes import size

_ROWS = 8
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_STYLES = {
    "scatter": "green", "replicate": "cyan", "forward": "blue", "gather": "magenta", "loss": "red",
    "backward": "yellow", "optimizer step": "bright_green", "between steps": "white",
}  # fmt: skip


def over_time(gpu: GpuMemory, canvas: Canvas) -> Iterator[Line]:
    """Yield the lines of the picture, the highest first."""
    columns = _columns(gpu.moments, max(10, canvas.width - 12))
    most = max(moment.live_bytes for moment in columns)
    yield styled(f"{size(most)} of tensors at most", "dim")
    for row in range(_ROWS - 1, -1, -1):
        cells = (
            (_cell(moment.live_bytes, most, row, canvas), _STYLES.get(moment.phase, "")) for moment in columns
        )
        yield tuple(cells)
    yield _phases(columns, canvas)


def _columns(moments: tuple[Moment, ...], width: int) -> list[Moment]:
    """Join moments until as many are left as there are columns; of those joined the fullest stays."""
    if len(moments) <= width:
        return list(moments)
    edges = [len(moments) * column // width for column in range(width + 1)]
    return [
        max(moments[start:end], key=lambda moment: moment.live_bytes)
        for start, end in itertools.pairwise(edges)
    ]


def _cell(live: int, most: int, row: int, canvas: Canvas) -> str:
    eighths = min(8, max(0, live * _ROWS * 8 // max(most, 1) - 8 * row))
    if canvas.is_ascii:
        return "#" if eighths >= 4 else " "
    return _EIGHTHS[eighths]


def _phases(columns: list[Moment], canvas: Canvas) -> Line:
    line: Line = ()
    for phase, run in itertools.groupby(columns, key=lambda moment: moment.phase):
        count = len(list(run))
        name = phase if len(phase) < count else phase[: max(0, count - 1)]
        line += styled(name + ("-" if canvas.is_ascii else "─") * (count - len(name)), _STYLES.get(phase, ""))
    return line

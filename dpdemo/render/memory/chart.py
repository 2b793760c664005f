"""A GPU's memory over a step: a column for each span of moments, and below them what the program was doing.

The columns are eight rows high. The line at the top is the peak, the dashes below are the phases, each with
its name where there is room, so that the picture can be read without colour.
"""

import itertools
from collections.abc import Iterator

from rich.text import Text

from dpdemo.bytesize import size
from dpdemo.reports.memory import GpuMemory, Moment

_ROWS = 8
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_STYLES = {
    "scatter": "green", "replicate": "cyan", "forward": "blue", "gather": "magenta", "loss": "red",
    "backward": "yellow", "optimizer step": "bright_green", "between steps": "white",
}  # fmt: skip


def over_time(gpu: GpuMemory, width: int, *, ascii_only: bool) -> Iterator[Text]:
    """Yield the lines of the picture, the highest first."""
    columns = _columns(gpu.moments, max(10, width - 12))
    most = max(moment.live_bytes for moment in columns)
    yield Text(f"{size(most)} of tensors at most", "dim")
    for row in range(_ROWS - 1, -1, -1):
        line = Text()
        for moment in columns:
            line.append(
                _cell(moment.live_bytes, most, row, ascii_only=ascii_only), _STYLES.get(moment.phase, "")
            )
        line.rstrip()
        yield line
    yield _phases(columns, ascii_only=ascii_only)


def _columns(moments: tuple[Moment, ...], width: int) -> list[Moment]:
    """Join moments until as many are left as there are columns; of those joined the fullest stays."""
    if len(moments) <= width:
        return list(moments)
    edges = [len(moments) * column // width for column in range(width + 1)]
    return [
        max(moments[start:end], key=lambda moment: moment.live_bytes)
        for start, end in itertools.pairwise(edges)
    ]


def _cell(live: int, most: int, row: int, *, ascii_only: bool) -> str:
    eighths = min(8, max(0, live * _ROWS * 8 // max(most, 1) - 8 * row))
    if ascii_only:
        return "#" if eighths >= 4 else " "
    return _EIGHTHS[eighths]


def _phases(columns: list[Moment], *, ascii_only: bool) -> Text:
    line = Text()
    for phase, run in itertools.groupby(columns, key=lambda moment: moment.phase):
        count = len(list(run))
        name = phase if len(phase) < count else phase[: max(0, count - 1)]
        line.append(name + ("-" if ascii_only else "─") * (count - len(name)), _STYLES.get(phase, ""))
    return line

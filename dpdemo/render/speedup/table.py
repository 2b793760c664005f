"""The tables for people: a row per fact, a column per way, DataParallel and DDP beside each other."""

from collections.abc import Iterator
from itertools import pairwise

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from dpdemo.render.console import GAP, Canvas
from dpdemo.render.speedup import words
from dpdemo.reports.speedup import SpeedupReport, Way

_STYLES = {"pays": "bold green", "does not pay": "bold red", "cannot tell": "bold yellow"}


def parts(report: SpeedupReport, canvas: Canvas) -> Iterator[RenderableType]:
    """Yield the picture of a report; numbers of GPUs that do not fit into the width go on below."""
    yield canvas.text(words.title(report), style="bold")
    yield canvas.text(words.setting(report), words.link_line(report), style="dim")
    for head, rows in words.sections(report.ways):
        yield Text()
        yield canvas.text(head, style="bold")
        for places in _fitting(report.ways, rows, canvas.width):
            if places.start:
                yield Text()
            yield _table(report.ways, places, rows, canvas)
    yield Text()
    yield canvas.text(f"{report.summary}.", style="bold")
    yield canvas.text(*words.notes(report), style="dim")


def _fitting(ways: tuple[Way, ...], rows: list[words.Row], width: int) -> Iterator[range]:
    """Divide the columns into parts that fit, without parting the two strategies of a number of GPUs."""
    names = max((cell_len(name) for name, _ in rows), default=0)
    columns = [
        GAP + max(map(cell_len, [words.heading(way), *(cells[place] for _, cells in rows)]))
        for place, way in enumerate(ways)
    ]
    starts = [0]
    for place in range(0, len(ways), 2):
        if place > starts[-1] and names + sum(columns[starts[-1] : place + 2]) > width:
            starts.append(place)
    yield from (range(start, end) for start, end in pairwise([*starts, len(ways)]))


def _table(ways: tuple[Way, ...], places: range, rows: list[words.Row], canvas: Canvas) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    table.add_column(no_wrap=True)
    for place in places:
        heading = canvas.text(words.heading(ways[place]), style="dim")
        table.add_column(heading, justify="right", no_wrap=True)
    for name, cells in rows:
        is_interval = name == words.BETWEEN
        shown = [
            canvas.text(cells[place], style="dim" if is_interval else _STYLES.get(cells[place], ""))
            for place in places
        ]
        table.add_row(canvas.text(name, style="dim" if is_interval else ""), *shown)
    return table

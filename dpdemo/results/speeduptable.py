"""The tables of a speed-up: a row per fact, a column per way, DataParallel and DDP beside each other."""

from collections.abc import Iterator
from itertools import pairwise

from dpdemo.results import speedupwords as words
from dpdemo.results.speedupdata import PartName, SpeedupData, Way
from dpdemo.results.table import GAP, SHORTEST_BAR, Block, Canvas, Line, Table, right, styled, text_width

_PARTS: dict[PartName, tuple[str, str]] = {
    "load": ("L", "white"),
    "buffers": ("U", "white"),
    "scatter": ("S", "cyan"),
    "replicate": ("R", "bright_blue"),
    "forward": ("F", "green"),
    "launching": ("P", "bright_red"),
    "gather": ("G", "cyan"),
    "output gradients": ("O", "bright_cyan"),
    "backward": ("B", "bright_green"),
    "reduce": ("D", "magenta"),
    "all-reduce": ("A", "magenta"),
    "input gradients": ("I", "bright_cyan"),
}
"""The letter and the colour of each part of a step."""
_STYLES = {"pays": "bold green", "does not pay": "bold red", "cannot tell": "bold yellow"}


def parts(report: SpeedupData, canvas: Canvas) -> Iterator[Block]:
    """Yield the picture of a report; numbers of GPUs that do not fit into the width go on below."""
    yield canvas.text(words.title(report), style="bold")
    yield canvas.text(words.setting(report), words.link_line(report), style="dim")
    for head, rows in words.sections(report.ways):
        yield ()
        yield canvas.text(head, style="bold")
        for places in _fitting(report.ways, rows, canvas.width):
            if places.start:
                yield ()
            yield _table(report.ways, places, rows, canvas)
    if canvas.draws_bars and any(way.timeline for way in report.ways):
        yield ()
        yield canvas.text(words.timeline_heading(report), style="bold")
        yield from _timelines(report.ways, canvas)
    yield ()
    yield canvas.text(f"{report.summary}.", style="bold")
    yield canvas.text(*words.notes(report), style="dim")


def _timelines(ways: tuple[Way, ...], canvas: Canvas) -> Iterator[Block]:
    """Yield a bar for each way, on one scale, and what the letters in them mean."""
    labels = [words.heading(way) for way in ways]
    totals = [words.timeline_total(way) for way in ways]
    width = canvas.width - max(map(len, labels)) - max(map(len, totals)) - 2 * GAP
    scale = max(sum(ms for _, ms in way.timeline) for way in ways)
    rows = Table(("keep", max(width, SHORTEST_BAR), "right"))
    for label, way, total in zip(labels, ways, totals, strict=True):
        rows.add(
            canvas.text(label),
            _timeline_bar(way, scale, max(width, SHORTEST_BAR), canvas),
            canvas.text(total),
        )
    yield rows
    used = [name for name in _PARTS if any(name == part for way in ways for part, _ in way.timeline)]
    legend: Line = ()
    for name in used:
        legend += (styled("  ") if legend else ()) + _letter(name) + styled(f" {name}")
    yield legend


def _timeline_bar(way: Way, scale: float, width: int, canvas: Canvas) -> Line:
    bar: Line = ()
    drawn, reached = 0, 0.0
    for name, ms in way.timeline:
        reached += ms
        cells = round(reached / scale * width) - drawn
        if cells > 0:
            bar += _letter(name) + styled(canvas.blocks(cells - 1), _PARTS[name][1])
            drawn += cells
    return bar


def _letter(name: PartName) -> Line:
    letter, style = _PARTS[name]
    return styled(letter, f"black on {style}")


def _fitting(ways: tuple[Way, ...], rows: list[words.Row], width: int) -> Iterator[range]:
    """Divide the columns into parts that fit, without parting the two strategies of a number of GPUs."""
    names = max((text_width(name) for name, _ in rows), default=0)
    columns = [
        GAP + max(map(text_width, [words.heading(way), *(cells[place] for _, cells in rows)]))
        for place, way in enumerate(ways)
    ]
    starts = [0]
    for place in range(0, len(ways), 2):
        if place > starts[-1] and names + sum(columns[starts[-1] : place + 2]) > width:
            starts.append(place)
    yield from (range(start, end) for start, end in pairwise([*starts, len(ways)]))


def _table(ways: tuple[Way, ...], places: range, rows: list[words.Row], canvas: Canvas) -> Table:
    headings = (canvas.text(words.heading(ways[place]), style="dim") for place in places)
    table = Table(("keep", *right(len(places))), head=((), *headings))
    for name, cells in rows:
        is_interval = name == words.BETWEEN
        shown = [
            canvas.text(cells[place], style="dim" if is_interval else _STYLES.get(cells[place], ""))
            for place in places
        ]
        table.add(canvas.text(name, style="dim" if is_interval else ""), *shown)
    return table

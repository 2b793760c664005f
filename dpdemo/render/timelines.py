"""Timelines as SVG and HTML: a lane for each GPU, blocks for its work, arrows for copies between lanes.

Drawn by hand, since Rich draws in cells of text. Like every picture here it needs nothing from a network, and
what a colour says is also written: in the block where there is room, and in its tooltip.
"""

import os
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from dpdemo.bytesize import size
from dpdemo.reports.timeline import Arrow, Block, Timeline, Work
from dpdemo.saving import replacing

_WIDTH, _LEFT, _RIGHT = 960, 76, 24
_TITLE, _LANE, _BLOCK, _FOOT = 44, 46, 24, 56
_SPAN = _WIDTH - _LEFT - _RIGHT
_LETTER = 6.3  # the width of a letter in a block
_COLOURS: dict[Work, str] = {"compute": "#3f8f5f", "copy": "#3b6ea8", "wait": "#e3e3e3", "launch": "#c98b2b"}
_TICKS = 5

_STYLE = """\
text { font-family: sans-serif; font-size: 12px; fill: #222; }
.title { font-size: 15px; font-weight: bold; }
.inside { font-size: 11px; fill: #fff; }
.wait { fill: #666; }
.above { font-size: 11px; fill: #2c5282; }
.axis { font-size: 11px; fill: #555; }
.arrow { stroke: #b03a2e; stroke-width: 1.3; }
.lane { stroke: #ddd; }
"""


def timelines_svg(timelines: Sequence[Timeline]) -> str:
    """Draw timelines below each other as one SVG."""
    heights = [_height(timeline) for timeline in timelines]
    parts = []
    for number, timeline in enumerate(timelines):
        top = sum(heights[:number])
        parts.append(f'<g transform="translate(0, {top})">\n{"".join(_drawn(timeline))}</g>\n')
    return (
        f'<svg class="dpdemo" viewBox="0 0 {_WIDTH} {sum(heights)}" xmlns="http://www.w3.org/2000/svg">\n'
        f"<style>\n{_STYLE}</style>\n"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
        'orient="auto"><path d="M 0 0 L 8 4 L 0 8 z" fill="#b03a2e"/></marker></defs>\n'
        f'<rect width="{_WIDTH}" height="{sum(heights)}" fill="#fff"/>\n{"".join(parts)}</svg>\n'
    )


def save_timelines(
    timelines: Sequence[Timeline], path: str | os.PathLike[str], title: str, below: str
) -> None:
    """Save timelines as a picture, or as a page with a text below them, by the file's ending.

    Raises:
        RunError: if writing fails half-way.

    """
    is_picture = Path(path).suffix.lower() == ".svg"
    text = timelines_svg(timelines) if is_picture else timelines_html(timelines, title, below)
    with replacing(path) as file:
        file.write(text)


def timelines_html(timelines: Sequence[Timeline], title: str, below: str) -> str:
    """Write a page with the timelines, and a text below them as it is."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n"
        "<style>svg { max-width: 1100px; width: 100%; } pre { line-height: 1.25; }</style>\n</head>\n<body>\n"
        f"{timelines_svg(timelines)}<pre>{escape(below)}</pre>\n</body>\n</html>\n"
    )


def _height(timeline: Timeline) -> int:
    return _TITLE + _LANE * len(timeline.lanes) + _FOOT


def _drawn(timeline: Timeline) -> Iterator[str]:
    scale = _SPAN / (timeline.length or 1.0)
    yield f'<text class="title" x="{_LEFT}" y="24">{escape(timeline.title)}</text>\n'
    for number, lane in enumerate(timeline.lanes):
        middle = _middle(number)
        yield f'<text x="{_LEFT - 8}" y="{middle + 4}" text-anchor="end">{escape(lane)}</text>\n'
        yield f'<line class="lane" x1="{_LEFT}" y1="{middle}" x2="{_WIDTH - _RIGHT}" y2="{middle}"/>\n'
    places = {lane: number for number, lane in enumerate(timeline.lanes)}
    for block in timeline.blocks:
        yield _block(block, places[block.lane], scale)
    yield from _names_above(timeline, scale)
    for number, arrow in enumerate(timeline.arrows):
        yield _arrow(arrow, places, scale, number)
    yield from _axis(timeline, scale)


def _middle(lane: int) -> int:
    return _TITLE + lane * _LANE + _LANE // 2


def _names_above(timeline: Timeline, scale: float) -> Iterator[str]:
    """Name the phases of GPU 0 that have no room inside their blocks, above them, as far as there is room."""
    lane = next((block.lane for block in timeline.blocks if block.work == "compute"), "")
    top = _middle(timeline.lanes.index(lane)) - _BLOCK // 2 - 4 if lane else 0
    reached, named = 0.0, ""
    for block in timeline.blocks:
        left = _LEFT + block.start * scale
        is_narrow = block.lane == lane and block.work == "copy" and not _has_room(block, scale)
        if is_narrow and block.name != named and left >= reached:
            yield f'<text class="above" x="{left:.1f}" y="{top}">{escape(block.name)}</text>\n'
            reached = left + (len(block.name) + 1) * _LETTER
        named = block.name if block.lane == lane else named


def _has_room(block: Block, scale: float) -> bool:
    return len(block.name) * _LETTER + 6 < block.length * scale


def _block(block: Block, lane: int, scale: float) -> str:
    left, width = _LEFT + block.start * scale, block.length * scale
    top = _middle(lane) - _BLOCK // 2
    told = escape(f"{block.name}: {block.detail}" if block.detail else block.name)
    drawn = (
        f'<g><title>{told}</title><rect x="{left:.1f}" y="{top}" width="{max(width, 0.5):.1f}" '
        f'height="{_BLOCK}" rx="2" fill="{_COLOURS[block.work]}"/>'
    )
    if _has_room(block, scale):
        kind = "inside wait" if block.work == "wait" else "inside"
        drawn += f'<text class="{kind}" x="{left + 4:.1f}" y="{top + 16}">{escape(block.name)}</text>'
    return drawn + "</g>\n"


def _arrow(arrow: Arrow, places: dict[str, int], scale: float, number: int) -> str:
    """Draw an arrow from edge to edge of two lanes; those of one phase stand apart."""
    source, target = places[arrow.source], places[arrow.target]
    down = 1 if target > source else -1
    width = arrow.length * scale
    left = _LEFT + arrow.start * scale + width * (0.15 + 0.1 * (number % 5))
    right = left + width * 0.3
    start, end = _middle(source) + down * _BLOCK // 2, _middle(target) - down * _BLOCK // 2
    told = escape(f"{arrow.name}: {size(arrow.num_bytes)} from {arrow.source} to {arrow.target}")
    return (
        f'<g><title>{told}</title><line class="arrow" x1="{left:.1f}" y1="{start}" x2="{right:.1f}" '
        f'y2="{end}" marker-end="url(#head)"/></g>\n'
    )


def _axis(timeline: Timeline, scale: float) -> Iterator[str]:
    bottom = _TITLE + _LANE * len(timeline.lanes) + 14
    if timeline.is_time:
        for tick in range(_TICKS + 1):
            ms = timeline.length * tick / _TICKS
            yield (
                f'<text class="axis" x="{_LEFT + ms * scale:.1f}" y="{bottom}" '
                f'text-anchor="middle">{ms:.3g} ms</text>\n'
            )
    yield f'<text class="axis" x="{_LEFT}" y="{bottom + 18}">{escape(timeline.axis)}</text>\n'

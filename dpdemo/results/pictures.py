"""A report as a picture: SVG and HTML that need nothing from a network."""

import html
import io
from collections.abc import Iterable

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from dpdemo.results.console import OFF_THE_PAGE, as_rich
from dpdemo.results.table import Line, Uncut, wrap
from dpdemo.wording import printable

WIDTH = 80
Lines = Iterable[Line]

_FONTS = "Menlo, 'DejaVu Sans Mono', 'Liberation Mono', Consolas, monospace"
_GLYPH_WIDTH = 0.602  # of its height, in these fonts; wider cells would show gaps inside the bars

# In place of Rich's own templates: those link to fonts on a CDN, and a saved picture must not call home.
# Without xml:space, librsvg drops the blanks at the start of a piece of text.
_SVG = """\
<svg class="dpdemo" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: FONTS; font-size: {char_height}px; line-height: {line_height}px;
}}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
""".replace("FONTS", _FONTS)

_FRAGMENT = """\
<pre style="font-family: FONTS; line-height: 1.25; white-space: pre; overflow-x: auto">{code}</pre>
""".replace("FONTS", _FONTS)
_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>TITLE</title>
<meta name="color-scheme" content="light dark">
</head>
<body style="color: CanvasText; background-color: Canvas">
BODY</body>
</html>
"""
_MIDDLE = TerminalTheme(
    (255, 255, 255),
    (0, 0, 0),
    [
        *((0, 0, 0), (205, 60, 60), (35, 150, 65), (170, 125, 0)),
        *((65, 120, 215), (170, 85, 190), (15, 145, 155), (128, 128, 128)),
    ],
    [
        *((100, 100, 100), (230, 90, 90), (80, 180, 95), (200, 155, 40)),
        *((110, 155, 235), (205, 125, 220), (70, 175, 185), (150, 150, 150)),
    ],
)
"""Colours that can be read on white and on black."""


def as_svg(title: str, lines: Lines) -> str:
    """Draw a report as an SVG."""
    recorded = _recorded(lines)
    return recorded.export_svg(title=printable(title), code_format=_SVG, font_aspect_ratio=_GLYPH_WIDTH)


def as_html(title: str, lines: Lines) -> str:
    """Draw a report as a page of HTML."""
    return _PAGE.replace("TITLE", html.escape(printable(title))).replace("BODY", as_fragment(lines))


def as_fragment(lines: Lines) -> str:
    """Draw a report as a piece of HTML for any page, light or dark."""
    return _recorded(lines).export_html(theme=_MIDDLE, code_format=_FRAGMENT, inline_styles=True)


WRITERS = {".svg": as_svg, ".html": as_html}
"""The writer of each ending."""


def _recorded(lines: Lines) -> Console:
    console = Console(
        **OFF_THE_PAGE,
        file=io.StringIO(),
        record=True,
        width=WIDTH,
        force_terminal=True,
        color_system="truecolor",
    )
    for line in lines:
        for part in wrap(line, WIDTH) if isinstance(line, Uncut) else [line]:
            console.print(as_rich(part), soft_wrap=True)
    return console

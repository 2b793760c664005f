"""A table as a picture: SVG and HTML that need nothing from a network, and plain text."""

import io
from collections.abc import Callable
from typing import IO

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME

WIDTH = 80

Draw = Callable[[Console], None]
"""Prints a picture on whatever console it is given."""

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

_HTML = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>TITLE</title>
<style>
{stylesheet}
body {{ color: {foreground}; background-color: {background}; }}
pre {{ font-family: FONTS; line-height: 1.25; }}
</style>
</head>
<body>
<pre><code style="font-family:inherit">{code}</code></pre>
</body>
</html>
""".replace("FONTS", _FONTS)


def svg(draw: Draw, title: str) -> str:
    """Draw a picture as an SVG."""
    return _recorded(draw).export_svg(title=title, code_format=_SVG, font_aspect_ratio=_GLYPH_WIDTH)


def html(draw: Draw, title: str) -> str:
    """Draw a picture as a page of HTML."""
    return _recorded(draw).export_html(theme=SVG_EXPORT_THEME, code_format=_HTML.replace("TITLE", title))


def write_text(draw: Draw, file: IO[str]) -> None:
    """Write a picture as plain text, whatever the environment says about colours."""
    draw(Console(file=file, width=WIDTH, force_terminal=False, color_system=None))


def _recorded(draw: Draw) -> Console:
    console = Console(
        file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor"
    )
    draw(console)
    return console

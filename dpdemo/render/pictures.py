"""The table as a picture: SVG and HTML that need nothing from a network, and plain text."""

import io
from typing import IO

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME

from dpdemo.render.table import print_report
from dpdemo.report import SplitReport

WIDTH = 80

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


def svg(report: SplitReport, *, verbose: bool) -> str:
    """Draw the table as an SVG."""
    console = _recorded(report, verbose=verbose)
    return console.export_svg(title=_title(report), code_format=_SVG, font_aspect_ratio=_GLYPH_WIDTH)


def html(report: SplitReport, *, verbose: bool) -> str:
    """Draw the table as a page of HTML."""
    console = _recorded(report, verbose=verbose)
    page = _HTML.replace("TITLE", _title(report))
    return console.export_html(theme=SVG_EXPORT_THEME, code_format=page)


def write_text(report: SplitReport, file: IO[str], *, verbose: bool) -> None:
    """Write the table as plain text, whatever the environment says about colours."""
    console = Console(file=file, width=WIDTH, force_terminal=False, color_system=None)
    print_report(report, console, verbose=verbose)


def _recorded(report: SplitReport, *, verbose: bool) -> Console:
    console = Console(
        file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor"
    )
    print_report(report, console, verbose=verbose)
    return console


def _title(report: SplitReport) -> str:
    return f"dpdemo {report.command}"

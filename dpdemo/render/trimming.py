"""Lines without the blanks that Rich pads them with."""

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment


class Trimmed:
    """A renderable without the blanks that Rich pads its lines with: they would end up in every pipe."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render, then drop the blanks at the ends of lines."""
        for line in console.render_lines(self._renderable, options, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                text, style, _ = line.pop()
                line.append(Segment(text.rstrip(), style))
            yield from line
            yield Segment.line()

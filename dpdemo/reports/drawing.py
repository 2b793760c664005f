"""Who draws a report: `render` lies above the reports, which know nothing of it; the package joins them."""

import os
from collections.abc import Callable, Iterable
from typing import Protocol


class Drawing(Protocol):
    """How a report looks: what `render` makes of it."""

    @property
    def title(self) -> str:
        """The name of the picture."""

    def parts(self, width: int, encoding: str) -> Iterable[object]:
        """Yield the picture as Rich renderables."""

    def text(self, form: str) -> str:
        """Write the report in a format."""

    def page(self) -> str:
        """Write the picture as a piece of HTML."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the report in the format that the file's ending names."""


_drawers: list[Callable[[object], Drawing]] = []


def drawn_by(drawer: Callable[[object], Drawing]) -> None:
    """Say what makes the drawing of a report."""
    _drawers[:] = [drawer]


def drawing_of(report: object) -> Drawing:
    """Give the drawing of a report."""
    return _drawers[0](report)

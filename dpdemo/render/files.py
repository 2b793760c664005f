"""What a report looks like in every form, written to a stream or saved to a file, whole or not at all."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpdemo.saving import FORMS, check_save_path, endings, replacing

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from dpdemo.render.console import Canvas
    from dpdemo.reports.base import Report

Text = Callable[[], Iterable[str]]
"""Makes the text of one format, piece by piece."""
DRAWN = ("table", "text")
"""What the picture is called among the formats."""


@dataclass(frozen=True)
class Drawing:
    """A report's title, how to draw it, and its text in each other format."""

    title: str
    draw: "Callable[[Canvas], Iterable[RenderableType]]"
    texts: Mapping[str, Text] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        report: "Report",
        title: str,
        draw: "Callable[[Canvas], Iterable[RenderableType]]",
        *,
        markdown: Text,
        **others: Text,
    ) -> "Drawing":
        """Make the drawing of a report, whose JSON and CSV come of its data."""
        data: dict[str, Text] = {"json": partial(_json, report), "csv": partial(_csv, report)}
        return cls(title, draw, {**data, "markdown": markdown, **others})

    def write(self, form: str, console: "Console") -> None:
        """Write it to a console, piece by piece; all but the picture is exact plain text."""
        if form in DRAWN:
            for part in self.parts(console.width, console.encoding):
                console.print(part, crop=False)
            return
        from dpdemo.render.console import write_pieces

        write_pieces(self._pieces(form), console.file, console.encoding)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save it in the format that the file's ending names; an interrupted save leaves the old file.

        Raises:
            UsageError: if nothing can be saved there.
            RunError: if writing fails half-way, as on a full disk.

        """
        check_save_path(path, endings(self.texts), key="path")
        suffix = Path(path).suffix.lower()
        with replacing(path) as file:
            if suffix in FORMS:
                file.writelines(self._pieces(FORMS[suffix]))
                return
            from dpdemo.render import pictures

            file.write(pictures.WRITERS[suffix](self))

    def parts(self, width: int, encoding: str) -> "Iterator[RenderableType]":
        """Yield the picture, ready to print."""
        from dpdemo.render.console import Canvas, Trimmed, Uncut

        canvas = Canvas(width, encoding)
        for part in self.draw(canvas):
            drawn = canvas.text(part) if isinstance(part, str) else part
            yield drawn if isinstance(drawn, Uncut) else Trimmed(drawn)

    def text(self, form: str) -> str:
        """Write it as one text."""
        if form not in DRAWN:
            return "".join(self._pieces(form))
        from dpdemo.render.pictures import as_text

        return as_text(self)

    def page(self) -> str:
        """Draw the picture as a piece of HTML, for a notebook."""
        from dpdemo.render.pictures import fragment

        return fragment(self)

    def _pieces(self, form: str) -> Iterable[str]:
        if form not in self.texts:
            known = " or ".join(filter(None, (", ".join(list(self.texts)[:-1]), list(self.texts)[-1])))
            raise ValueError(f"expected {known}, got {form!r}")
        return self.texts[form]()


def _json(report: "Report", **options: Any) -> Iterable[str]:
    from dpdemo.render.json import pieces

    return pieces(report.streamed(**options))


def _csv(report: "Report") -> Iterable[str]:
    from dpdemo.render.rows import csv_pieces

    return csv_pieces(report.columns, report.each_row())

"""Saving what can be drawn to a file, whole or not at all."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dpdemo.atomic import replacing
from dpdemo.render.plain import pieces
from dpdemo.render.saving import PICTURES, check_save_path
from dpdemo.report import SplitReport

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Drawn:
    """Something to save: how to draw it on a console, and its text in other formats by their endings."""

    title: str
    draw: "Callable[[Console], None]"
    texts: Mapping[str, Callable[[], Iterable[str]]] = field(default_factory=dict)

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The endings it can be saved under."""
        return (*PICTURES, *self.texts)


def save_report(report: SplitReport, path: str | os.PathLike[str], *, verbose: bool) -> None:
    """Write the report in the format of the file's ending, then put it in the old file's place.

    Raises:
        UsageError: if nothing can be saved there.
        RunError: if writing fails half-way.

    """

    def draw(console: "Console") -> None:
        from dpdemo.render.table import print_report

        print_report(report, console, verbose=verbose)

    texts = {
        ".json": lambda: pieces(report, "json", verbose=verbose),
        ".csv": lambda: pieces(report, "csv", verbose=verbose),
        ".md": lambda: pieces(report, "markdown", verbose=verbose),
    }
    save_drawn(Drawn(f"dpdemo {report.command}", draw, texts), path)


def save_drawn(drawn: Drawn, path: str | os.PathLike[str]) -> None:
    """Write something in the format of the file's ending, then put it in the old file's place.

    Raises:
        UsageError: if nothing can be saved there.
        RunError: if writing fails half-way.

    """
    check_save_path(path, drawn.suffixes)
    suffix = Path(path).suffix.lower()
    with replacing(path) as file:
        if suffix in drawn.texts:
            file.writelines(drawn.texts[suffix]())
            return
        from dpdemo.render import pictures

        if suffix == ".txt":
            pictures.write_text(drawn.draw, file)
        else:
            make = pictures.svg if suffix == ".svg" else pictures.html
            file.write(make(drawn.draw, drawn.title))

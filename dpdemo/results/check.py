"""The result of `dpdemo check`: its findings in every form."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from dpdemo.results.checkdata import CheckData
from dpdemo.results.report import Report
from dpdemo.results.table import Block, Canvas


@dataclass(frozen=True, slots=True)
class CheckReport(CheckData):
    """The result of one check; see `CheckData` for its fields."""

    TITLE: ClassVar[str] = "dpdemo check"
    FORMS: ClassVar[tuple[str, ...]] = (*Report.FORMS, "github", "sarif")

    def pieces(self, form: str) -> Iterable[str]:
        """Yield the text of a format, piece by piece."""
        if form not in {"github", "sarif"}:
            return Report.pieces(self, form)
        from dpdemo.results import checkformats

        return checkformats.as_github(self) if form == "github" else checkformats.as_sarif(self)

    def blocks(self, canvas: Canvas) -> Iterator[Block]:
        """Yield the findings, the notes, and the summary."""
        from dpdemo.results.checktext import findings

        return findings(self, canvas)

    def markdown(self) -> Iterator[str]:
        """Yield a table of findings, and the fix of each rule."""
        from dpdemo.results.checkformats import as_markdown

        return as_markdown(self)

"""The base of every report: plain data, rows, and all the ways to look at it."""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, ClassVar

from dpdemo.files import FORMS, check_save_path, endings, replacing
from dpdemo.results.console import canvas_of, write_lines
from dpdemo.results.formats import Cell, Row, csv_pieces, json_pieces, plain_fields, without_iterators
from dpdemo.results.table import Block, Canvas, Line, lay_out, plain
from dpdemo.wording import fit

DIGITS = 6


class Report:
    """A report has two parts: `data`, its JSON form, and `blocks`, its picture."""

    __slots__ = ()
    SCHEMA: ClassVar[str]
    """The JSON form and its version."""
    DERIVED: ClassVar[tuple[str, ...]] = ()
    """The properties that the JSON form has beside the fields."""
    FORMS: ClassVar[tuple[str, ...]] = ("json",)

    def data(self) -> dict[str, Any]:
        """Return the JSON form: the fields and `DERIVED`; long lists may be iterators."""
        return plain_fields(self)

    def blocks(self, canvas: Canvas) -> Iterator[Block]:
        """Yield the picture, block by block."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        """The title of the picture, which names the command: that of `dpdemo.memory/1` is `dpdemo memory`."""
        return " ".join(self.SCHEMA.partition("/")[0].split("."))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, the same that JSON holds."""
        found: dict[str, Any] = without_iterators(self._json_data())
        return found

    def to_json(self) -> str:
        """Write the report as JSON; docs/reference.md shows an example."""
        return self.text("json")

    def text(self, form: str) -> str:
        """Write the report as one text."""
        return "".join(self.pieces(form))

    def pieces(self, form: str) -> Iterable[str]:
        """Yield the text of a format, piece by piece.

        Raises:
            ValueError: for a format that the report does not have.

        """
        match form:
            case "table" | "text":
                return (f"{plain(line)}\n" for line in self.picture(Canvas(80)))
            case "json":
                return json_pieces(self._json_data())
        *others, last = ("table", *self.FORMS)
        raise ValueError(f"expected {', '.join(others)} or {last}, got {form!r}")

    def _json_data(self) -> dict[str, Any]:
        # single values first, then lists, which may be long
        plain_data = self.data()
        ordered = sorted(
            plain_data.items(), key=lambda item: not isinstance(item[1], str | int | float | None)
        )
        return {"schema": self.SCHEMA, **dict(ordered)}

    def picture(self, canvas: Canvas) -> Iterator[Line]:
        """Yield the picture, line by line."""
        return lay_out(self.blocks(canvas), canvas)

    def write(self, form: str, stream: IO[str] | None = None, *, width: int | None = None) -> None:
        """Write the report to a stream, piece by piece; all but the picture is exact plain text.

        Args:
            form: `table`, or a format of this report.
            stream: stdout if left out.
            width: of the picture; the stream's if left out.

        """
        stream = sys.stdout if stream is None else stream
        canvas = canvas_of(stream, width)
        if form in {"table", "text"}:
            write_lines(self.picture(canvas), stream)
        else:
            stream.writelines(fit(piece, canvas.encoding) for piece in self.pieces(form))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the report in the format that the file's ending names, whole or not at all.

        Raises:
            UsageError: if nothing can be saved there.
            RunError: if writing fails half-way, as on a full disk.

        """
        check_save_path(path, endings(self.FORMS), key="path")
        self.write_file(path)

    def write_file(self, path: str | os.PathLike[str]) -> None:
        """Write a file whose path has been checked, whole or not at all.

        Raises:
            RunError: if that fails, as on a full disk.

        """
        suffix = Path(path).suffix.lower()
        with replacing(path) as file:
            if suffix in FORMS or suffix == ".txt":
                file.writelines(self.pieces(FORMS.get(suffix, "table")))
                return
            from dpdemo.results import pictures

            file.write(pictures.WRITERS[suffix](self.title, self.picture(Canvas(pictures.WIDTH))))

    def __str__(self) -> str:
        """Draw the report as plain text, 80 columns wide."""
        return self.text("table").rstrip("\n")

    def __rich_console__(self, _: object, options: Any) -> Iterator[object]:
        from dpdemo.results.console import as_rich

        yield from map(as_rich, self.picture(Canvas(options.max_width, encoding=options.encoding)))

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        # in place of the long text that Python makes of a dataclass, where a page is not shown
        return {"text/plain": str(self), "text/html": self._repr_html_()}

    def _repr_html_(self) -> str:
        from dpdemo.results import pictures

        return pictures.as_fragment(self.picture(Canvas(pictures.WIDTH)))


class TableReport(Report):
    """A report that is a table: it is CSV and Markdown too."""

    __slots__ = ()
    FORMS: ClassVar[tuple[str, ...]] = ("json", "csv", "markdown")
    columns: ClassVar[tuple[str, ...]]
    """The names of the values in each row."""

    def each_row(self) -> Iterator[Row]:
        """Yield the values of each row, in the order of `columns`."""
        raise NotImplementedError

    def rows(self) -> list[dict[str, Cell]]:
        """List the report's rows by column, as its CSV has them: `pandas.DataFrame(report.rows())`."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.each_row()]

    def to_markdown(self) -> str:
        """Write the report as Markdown."""
        return self.text("markdown")

    def pieces(self, form: str) -> Iterable[str]:
        """Yield the text of a format, piece by piece."""
        match form:
            case "csv":
                return csv_pieces(self.columns, self.each_row())
            case "markdown":
                from dpdemo.results.markdown import CANVAS, markdown_pieces

                return markdown_pieces(self.blocks(CANVAS))
        return Report.pieces(self, form)


def rounded(number: float) -> float:
    """Round a ratio to the digits that readers of JSON need."""
    return round(number, DIGITS)

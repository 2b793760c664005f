"""What all reports share: their plain data, their rows, and the ways to look at one.

A report is a frozen dataclass. pydantic reads its fields and what is marked as `computed`, so that the JSON
comes of itself. The classes stay plain ones: they are made by the thousand in an
epoch's loop, and pydantic's schema of them is built only where JSON is asked for.
"""

import math
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, PlainSerializer, TypeAdapter, computed_field
from pydantic_core import SchemaError

from dpdemo.reports.drawing import drawing_of

if TYPE_CHECKING:
    computed = property  # to a type checker it is one; `computed_field` makes one too
else:
    computed = computed_field

DIGITS = 6
Cell = str | int | float | None
"""What stands in a column of a row: flat, as a CSV has it."""
Row = tuple[Cell, ...]
Ratio = Annotated[float, PlainSerializer(lambda number: round(number, DIGITS), return_type=float)]
"""A ratio, in JSON with the digits that its readers need."""
Finite = Annotated[
    float, PlainSerializer(lambda number: number if math.isfinite(number) else None, return_type=float | None)
]
"""A number, in JSON null where it is infinite or not a number."""
Hidden = Field(exclude=True)
"""Marks a field that JSON leaves out."""
IfThere = Field(exclude_if=lambda value: value is None)
"""Marks a field that JSON has only where it has a value."""


class Report:
    """The base of every report: `SCHEMA` names the JSON form and its version."""

    __slots__ = ()
    SCHEMA: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    """The names of what stands in each row."""

    def streamed(self, *, verbose: bool = False) -> dict[str, object]:
        """Give the report as plain data whose long lists are made while they are read, and only once.

        Args:
            verbose: list each batch by itself, where equal ones are grouped otherwise.

        """
        plain = _adapter(type(self)).dump_python(self, by_alias=True, context=self._context(verbose=verbose))
        return {"schema": self.SCHEMA, **_short_first(plain)}

    def _context(self, *, verbose: bool) -> dict[str, object]:
        """Say what the serializers of the parts need to know of the whole."""
        return {"verbose": verbose}

    def to_dict(self) -> dict[str, object]:
        """Give the report as plain data, the same that JSON holds."""
        context = self._context(verbose=False)
        plain = _adapter(type(self)).dump_python(self, mode="json", by_alias=True, context=context)
        return {"schema": self.SCHEMA, **_short_first(plain)}

    def each_row(self) -> Iterator[Row]:
        """Yield the values of each row, in the order of `columns`."""
        raise NotImplementedError

    def rows(self) -> list[dict[str, Cell]]:
        """List the report's rows by column, as its CSV has them: `pandas.DataFrame(report.rows())`."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.each_row()]

    def to_json(self) -> str:
        """Write the report as JSON; docs/json.md shows an example."""
        return drawing_of(self).text("json")

    def to_markdown(self) -> str:
        """Write the report as Markdown."""
        return drawing_of(self).text("markdown")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the report in the format that the file's ending names, whole or not at all.

        Raises:
            UsageError: if nothing can be saved there.
            RunError: if writing fails half-way, as on a full disk.

        """
        drawing_of(self).save(path)

    def __str__(self) -> str:
        """Draw the report as plain text, 80 columns wide."""
        return drawing_of(self).text("table").rstrip("\n")

    def __rich_console__(self, _: object, options: Any) -> Iterator[object]:
        yield from drawing_of(self).parts(options.max_width, options.encoding)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        # in place of the long text that Python makes of a dataclass, where a page is not shown
        return {"text/plain": str(self), "text/html": self._repr_html_()}

    def _repr_html_(self) -> str:
        return drawing_of(self).page()


_adapters: dict[type["Report"], TypeAdapter["Report"]] = {}


def _adapter(kind: type["Report"]) -> TypeAdapter["Report"]:
    if kind not in _adapters:
        try:
            _adapters[kind] = TypeAdapter(kind)
        except SchemaError as error:  # so pydantic tells a Ctrl-C that comes while it builds
            if "KeyboardInterrupt" in str(error):
                raise KeyboardInterrupt from error
            raise
    return _adapters[kind]


def _short_first(plain: dict[str, Any]) -> dict[str, Any]:
    """Put what is a single value before lists, which may be long."""
    return dict(sorted(plain.items(), key=lambda item: not isinstance(item[1], str | int | float | None)))

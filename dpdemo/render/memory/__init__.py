"""Drawing a MemoryReport: a table with bars for people, JSON, CSV, Markdown, and files of each."""

import os
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from rich.console import Console

    from dpdemo.memoryreport import MemoryReport

MemoryFormat = Literal["table", "json", "csv", "markdown"]
MEMORY_FORMATS: tuple[MemoryFormat, ...] = get_args(MemoryFormat)


def write_memory(report: "MemoryReport", form: MemoryFormat, console: "Console") -> None:
    """Write a report to a console; all forms but `table` are exact plain text."""
    if form == "table":
        from dpdemo.render.memory.table import print_memory

        print_memory(report, console)
        return
    from dpdemo.render.glyphs import fit
    from dpdemo.render.memory.plain import WRITERS

    console.file.write(fit(WRITERS[form](report), console.encoding))


def save_memory(report: "MemoryReport", path: str | os.PathLike[str]) -> None:
    """Save a report in the format that the file's ending names.

    Raises:
        UsageError: if nothing can be saved there.
        RunError: if writing fails half-way.

    """
    from dpdemo.render.files import Drawn, save_drawn
    from dpdemo.render.memory.plain import as_csv, as_markdown
    from dpdemo.render.memory.table import print_memory
    from dpdemo.render.memory.wire import as_json

    texts = {
        ".json": lambda: [as_json(report)],
        ".csv": lambda: [as_csv(report)],
        ".md": lambda: [as_markdown(report)],
    }
    save_drawn(Drawn("dpdemo memory", lambda console: print_memory(report, console), texts), path)

"""A memory report as CSV, a line a GPU in bytes, and as Markdown, with the rows and columns of the table."""

import csv
import io
import re
from collections.abc import Callable, Sequence

from dpdemo.memoryreport import MemoryReport
from dpdemo.render.memory import words
from dpdemo.render.memory.lines import gpu_lines
from dpdemo.render.memory.wire import KEYS, as_json

COLUMNS = (
    *("device", "rows", *(f"{key}_bytes" for key in KEYS)),
    *("peak_bytes", "phase", "capacity_bytes", "spare_bytes", "fits"),
)
"""Capacity and spare are empty where no capacity was given."""


def as_csv(report: MemoryReport) -> str:
    """Write a report as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for gpu, rows in zip(report.gpus, report.chunks, strict=True):
        room = (gpu.capacity_bytes, gpu.spare_bytes, str(gpu.fits).lower())
        writer.writerow((gpu.device, rows, *gpu.parts, gpu.peak_bytes, gpu.phase, *room))
    return file.getvalue()


def as_markdown(report: MemoryReport) -> str:
    """Write a report as a GitHub table, padded so that the source reads well too, and the answer below it."""
    lines = gpu_lines(report)
    columns = [["", *words.row_names(report)]]
    columns += [[words.heading(line), *words.column(report, line)] for line in lines]
    widths = [max(map(len, column)) for column in columns]
    head, *rows = zip(*columns, strict=True)
    rule = ("-" * widths[0], *(f"{'-' * (width - 1)}:" for width in widths[1:]))
    parts = [f"### {_escaped(words.title(report))}", "", _escaped(words.setting(report)), ""]
    parts += [_line(cells, widths) for cells in (head, rule, *rows)]
    parts += ["", f"**{_escaped(words.verdict(report))}**"]
    if report.fit is not None and report.fit.remedies:
        parts += ["", f"{words.remedies_heading(report.fit)}:", ""]
        for remedy in report.fit.remedies:
            said = f"{remedy.name}: {words.gain(remedy)}, {words.fullest_then(remedy)} ({remedy.how})"
            parts.append(f"- {_escaped(said)}")
    return "\n".join(parts) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    name, *others = cells
    padded = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
    return f"| {' | '.join([name.ljust(widths[0]), *padded])} |"


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_<|\[\]])", r"\\\1", text)


WRITERS: dict[str, Callable[[MemoryReport], str]] = {
    "json": as_json,
    "csv": as_csv,
    "markdown": as_markdown,
}

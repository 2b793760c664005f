"""A report as Markdown: the table's own lines as a GitHub table, padded so that the source reads well too."""

import re
from collections.abc import Iterator

from dpdemo.render import words
from dpdemo.render.lines import Line, group_lines
from dpdemo.render.plain import listed
from dpdemo.render.shapes import bracketed
from dpdemo.report import BatchGroup, Shapes, SplitReport

Row = tuple[str, ...]


def pieces(report: SplitReport, *, verbose: bool) -> Iterator[str]:
    """Yield a heading, the table, and the totals as a list."""
    yield f"### {_escaped(words.title(report))}\n\n{_escaped(words.setting(report))}\n"
    if report.partial:
        yield f"\n**{words.interruption(report)}**\n"
    yield "\n"
    yield from _table(report, verbose=verbose)
    yield "\n"
    for name, number, meaning in words.facts(report):
        yield f"- {name}: {' '.join(filter(None, (number, meaning)))}\n"
    for warning in words.warnings(report):
        yield f"- Warning: {warning}\n"
    if tip := words.tip(report):
        yield f"- Tip: {tip}\n"


def _table(report: SplitReport, *, verbose: bool) -> Iterator[str]:
    inside = words.inside(report)
    head = ("Batches", "Device", "Rows", _escaped(f"{inside}: input"), _escaped(f"{inside}: output"))
    # One batch has a shorter number than a group of them, so these widths hold for `verbose` as well.
    widths = [max(map(len, column)) for column in zip(head, *_rows(report, verbose=False), strict=True)]
    yield _line(head, widths)
    yield _line(_rule(widths), widths)
    for row in _rows(report, verbose=verbose):
        yield _line(row, widths)


def _rule(widths: list[int]) -> Row:
    batches, device, rows, *shapes = ("-" * width for width in widths)
    return (batches, device, f"{rows[1:]}:", *shapes)  # the colon sets numbers to the right


def _rows(report: SplitReport, *, verbose: bool) -> Iterator[Row]:
    for group in listed(report, verbose=verbose):
        for line in group_lines(report, group):
            yield _row(group, line)
        yield _outside_row(report, group)


def _row(group: BatchGroup, line: Line) -> Row:
    if line.is_idle:
        return (words.span(group), line.label, "0", "idle", "idle")
    rows = f"{line.rows} each" if line.count > 1 else str(line.rows)
    return (words.span(group), line.label, rows, _cell(line.input), _cell(line.output))


def _outside_row(report: SplitReport, group: BatchGroup) -> Row:
    outside = group.outside
    before = f"{_cell(outside.input)} on {outside.input_device}"
    after = f"{_cell(outside.output)} on {outside.device}{words.outside_of(report)}"
    return (words.span(group), "Outside", str(group.batch_size), before, after)


def _cell(shapes: Shapes) -> str:
    return re.sub(r"([\\`*_<|])", r"\\\1", ", ".join(bracketed(shapes)))


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_<|\[\]])", r"\\\1", text)


def _line(cells: Row, widths: list[int]) -> str:
    padded = [
        cell.rjust(width) if index == 2 else cell.ljust(width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return f"| {' | '.join(padded)} |\n"

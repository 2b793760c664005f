"""A report as Markdown: the table's own lines as a GitHub table, padded so that the source reads well too."""

from collections.abc import Iterator

from dpdemo.render.markdown import escaped, table
from dpdemo.render.shapes import bracketed
from dpdemo.render.split import words
from dpdemo.render.split.lines import Line, group_lines
from dpdemo.render.split.tokens import token_markdown
from dpdemo.reports.split import BatchGroup, Shapes, SplitReport

Row = tuple[str, ...]


def pieces(report: SplitReport, *, verbose: bool) -> Iterator[str]:
    """Yield a heading, the table, and the totals as a list."""
    yield f"### {escaped(words.title(report))}\n\n{escaped(words.setting(report))}\n"
    if report.partial:
        yield f"\n**{words.interruption(report)}**\n"
    yield "\n"
    if report.tokens is None:
        yield from _table(report, verbose=verbose)
    else:
        yield from token_markdown(report.tokens, verbose=verbose)
    yield "\n"
    for name, number, meaning in words.facts(report):
        said = " ".join(filter(None, (number, escaped(meaning)))).replace(" : ", ": ")
        yield f"- {name}: {said}\n"
    for note in words.notes(report):
        yield f"- Note: {escaped(note)}\n"
    for warning in words.warnings(report):
        yield f"- Warning: {escaped(warning)}\n"
    if tip := words.tip(report):
        yield f"- Tip: {escaped(tip)}\n"


def _table(report: SplitReport, *, verbose: bool) -> Iterator[str]:
    inside = words.inside(report)
    head = ("Batches", "Device", "Rows", escaped(f"{inside}: input"), escaped(f"{inside}: output"))
    # One batch has a shorter number than a group of them, so these widths hold for `verbose` as well.
    widths = [max(map(len, column)) for column in zip(head, *_rows(report, verbose=False), strict=True)]
    return table(head, _rows(report, verbose=verbose), right={2}, widths=widths)


def _rows(report: SplitReport, *, verbose: bool) -> Iterator[Row]:
    for group in report.listed(verbose=verbose):
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
    return ", ".join(bracketed(shapes, escaped))

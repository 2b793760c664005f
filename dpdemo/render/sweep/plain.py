"""A sweep as Markdown."""

from collections.abc import Iterator

from dpdemo.render.markdown import escaped, table
from dpdemo.render.sweep.blocks import Block, blocks, cut
from dpdemo.render.sweep.signs import LEGENDS, sign
from dpdemo.render.sweep.words import TITLES, basis, best, counts, figure, grid_of, span
from dpdemo.reports.sweep import SweepReport

_COLUMNS = 16
_ROWS = 32


def as_markdown(report: SweepReport) -> Iterator[str]:
    """Yield a GitHub table of the map, a column for some neighbouring batch sizes, and the words below."""
    yield f"### {escaped(TITLES[report.measure])}\n\n{escaped(grid_of(report))}\n\n"
    rows, columns = cut(len(report.lines), _ROWS), cut(len(report.batch_sizes), _COLUMNS)
    ends = [(report.batch_sizes[each.start], report.batch_sizes[each.stop - 1]) for each in columns]
    head = ["GPUs", *map(span, ends)]
    labels = [span((report.lines[each][0].gpus, report.lines[each][-1].gpus)) for each in rows]
    cells = (
        (label, *(_cell(block, report) for block in row))
        for label, row in zip(labels, blocks(report, rows, columns), strict=True)
    )
    yield from table(head, cells, right=range(len(head)))
    yield "\n"
    if report.basis is None:
        yield f"{escaped(LEGENDS[report.measure])}\n\n"
    for line in (*counts(report), *basis(report)):
        yield f"- {escaped(line)}\n"
    yield f"\n**{escaped(best(report))}.**\n"


def _cell(block: Block, report: SweepReport) -> str:
    if report.basis is not None:
        return escaped(" ".join(filter(None, (_figure(block, report), block.answer))))
    mark = sign(block, report.measure)
    return f"{block.mean:.3g}{f' {mark}' if mark in {'x', 'o'} else ''}"


def _figure(block: Block, report: SweepReport) -> str:
    return figure(block.mean, report.measure) if block.mean else ""

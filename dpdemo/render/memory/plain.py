"""A memory report as Markdown, with the rows and columns of the table."""

from collections.abc import Iterator

from dpdemo.render.markdown import escaped, table
from dpdemo.render.memory import words
from dpdemo.render.memory.lines import gpu_lines
from dpdemo.reports.memory import MemoryReport


def as_markdown(report: MemoryReport) -> Iterator[str]:
    """Yield a GitHub table, and the answer below it."""
    lines = gpu_lines(report)
    columns = [["", *words.row_names(report)]]
    columns += [[words.heading(line), *words.column(report, line)] for line in lines]
    head, *rows = zip(*columns, strict=True)
    yield f"### {escaped(words.title(report))}\n\n{escaped(words.setting(report))}\n\n"
    yield from table(head, rows, right=range(1, len(head)))
    yield f"\n**{escaped(words.verdict(report))}**\n"
    if report.fit is not None and report.fit.remedies:
        yield f"\n{words.remedies_heading(report.fit)}:\n\n"
        for remedy in report.fit.remedies:
            said = f"{remedy.name}: {words.gain(remedy)}, {words.fullest_then(remedy)} ({remedy.how})"
            yield f"- {escaped(said)}\n"

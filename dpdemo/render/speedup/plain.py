"""A speed-up report as Markdown."""

from collections.abc import Iterator

from dpdemo.render.markdown import escaped, table
from dpdemo.render.speedup import words
from dpdemo.reports.speedup import SpeedupReport


def as_markdown(report: SpeedupReport) -> Iterator[str]:
    """Yield GitHub tables, and the answer below."""
    yield f"### {escaped(words.title(report))}\n\n{escaped(words.setting(report))}\n\n"
    for head, rows in words.sections(report.ways):
        heads = (head, *(words.heading(way) for way in report.ways))
        cells = [(name.strip(), *values) for name, values in rows]
        yield from table(heads, cells, right=range(1, len(heads)))
        yield "\n"
    yield f"**{escaped(report.summary)}.**\n"

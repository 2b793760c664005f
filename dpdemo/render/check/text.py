"""Findings for people: a block each, the worst first, then one line that sums up."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from dpdemo.render.check.words import IN_THE_PROGRAM, seen_text, summary
from dpdemo.render.console import Canvas, Uncut, grid
from dpdemo.reports.check import CheckReport, Finding

_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}


def findings(report: CheckReport, canvas: Canvas) -> Iterator[RenderableType]:
    """Yield the findings, what could not be looked at, and the summary."""
    for finding in report.findings:
        if finding.severity == "info":
            yield Text.assemble(_heading(finding, canvas), ": ", canvas.text(finding.message))
        else:
            yield Uncut(_heading(finding, canvas))
            yield from _block(finding, canvas)
            yield Text()
    if report.findings and report.findings[-1].severity == "info":
        yield Text()
    for note in report.remarks:
        yield f"note: {note}"
    if report.remarks:
        yield Text()
    style = "bold red" if not report.ok else "bold green" if not report.findings else "bold"
    yield canvas.text(summary(report), style=style)


def _heading(finding: Finding, canvas: Canvas) -> Text:
    heading = Text.assemble((finding.severity, _STYLES[finding.severity]), " ", (finding.code, "bold"))
    heading.append(f" {finding.name}")
    if finding.place is not None:
        heading.append("  ").append_text(canvas.text(finding.place.short, style="dim"))
    return heading


def _block(finding: Finding, canvas: Canvas) -> Iterator[RenderableType]:
    rows = grid(_LABEL, "fold", gap=1)
    rows.add_row("", canvas.text(finding.message))
    rows.add_row(_label("why"), canvas.text(_flat(finding.rule.section("Why"))))
    before, after = ("example", "becomes") if finding.is_example else ("before", "after")
    rows.add_row(_label(before), canvas.text(*finding.before.splitlines(), style="red"))
    rows.add_row(_label(after), canvas.text(*finding.after.splitlines(), style="green"))
    for change in finding.also:
        where = change.place.short if change.place else IN_THE_PROGRAM
        rows.add_row(_label("also"), canvas.text(where, style="dim"))
        rows.add_row(_label("before"), canvas.text(*change.before.splitlines(), style="red"))
        rows.add_row(_label("after"), canvas.text(*change.after.splitlines(), style="green"))
    if finding.seen_in:
        rows.add_row(_label("seen in"), canvas.text(seen_text(finding)))
    rows.add_row(_label("see"), canvas.text(_flat(finding.rule.section("References"))))
    yield rows


_LABEL = len("  seen in")


def _label(name: str) -> Text:
    return Text(f"  {name}", "dim")


def _flat(text: str) -> str:
    return " ".join(text.split())

"""Findings for people, as a compiler shows them: the line, the observation, the reason, and the fix."""

import re
from collections.abc import Iterator

from dpdemo.results.checkdata import IN_THE_PROGRAM, CheckData, seen_text, summary
from dpdemo.results.findings import Change, Finding, Place
from dpdemo.results.table import Block, Canvas, Line, Table, Uncut, styled

_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}


def findings(report: CheckData, canvas: Canvas) -> Iterator[Block]:
    """Yield the findings, what could not be looked at, and the summary."""
    told: dict[object, str] = {}
    for finding in report.findings:
        if finding.severity == "info":
            yield _heading(finding, canvas) + styled(": ") + canvas.text(finding.message)
        else:
            repair = (finding.code, finding.before, finding.after, finding.also)
            yield Uncut(_heading(finding, canvas))
            yield from _line(finding, canvas)
            yield from _block(finding, canvas, told.get(repair, ""))
            told.setdefault(repair, finding.place.short if finding.place else finding.subject)
            yield ()
    if report.findings and report.findings[-1].severity == "info":
        yield ()
    for note in report.remarks:
        yield canvas.text(f"note: {note}")
    if report.remarks:
        yield ()
    style = "bold red" if not report.ok else "bold green" if report.is_clean else "bold"
    yield canvas.text(summary(report), style=style)


def _heading(finding: Finding, canvas: Canvas) -> Line:
    heading = ((finding.severity, _STYLES[finding.severity]), (" ", ""), (finding.code, "bold"))
    place = () if finding.place is None else styled("  ") + canvas.text(finding.place.short, style="dim")
    return heading + styled(f" {finding.name}") + place


def _line(finding: Finding, canvas: Canvas) -> Iterator[Block]:
    """Yield the user's line with its number, and carets below what the finding is about."""
    place = finding.place
    if place is None or not place.code:
        return
    number = str(place.line).rjust(_LABEL - 1)
    start, end = _part(finding, place)
    margin = " " * len(number)
    yield Uncut(styled(f"{number} | ", "dim") + canvas.text(place.code))
    carets = " " * len(canvas.fit(place.code[:start])) + "^" * max(len(place.code[start:end]), 1)
    yield Uncut(((f"{margin} | ", "dim"), (carets, _STYLES[finding.severity])))


def _part(finding: Finding, place: Place) -> tuple[int, int]:
    """Find in a line the name that a finding is about; else all of the line, but for a comment."""
    name = re.escape(finding.subject.partition(",")[0].rpartition(".")[2])
    found = re.search(rf"(\w+\.)*\b{name}\b", place.code) if re.fullmatch(r"\w+", name) else None
    if found is not None:
        return found.span()
    return 0, len(re.split(r"\s+#", place.code, maxsplit=1)[0])


def _block(finding: Finding, canvas: Canvas, as_at: str) -> Iterator[Block]:
    """Yield the observation, the reason and the fix; a repeated fix is named by its place."""
    rows = Table((_LABEL, "fold"), gap=1)
    rows.add((), canvas.text(finding.message))
    if as_at:
        rows.add(_label("fix"), canvas.text(f"as at {as_at}"))
        yield rows
        return
    rows.add(_label("why"), canvas.text(_flat(finding.rule.section("Why"))))
    label = "example" if finding.is_example else "fix"
    if finding.place is None or finding.before != finding.place.code:
        rows.add(_label("not"), canvas.text(*finding.before.splitlines(), style="red"))
    rows.add(_label(label), canvas.text(*finding.after.splitlines(), style="green"))
    for change in finding.also:
        rows.add(_label("also"), canvas.text(_where(change), style="dim"))
        rows.add(_label("not"), canvas.text(*change.before.splitlines(), style="red"))
        rows.add(_label(label), canvas.text(*change.after.splitlines(), style="green"))
    if finding.seen_in:
        rows.add(_label("seen in"), canvas.text(seen_text(finding)))
    rows.add(_label("see"), canvas.text(_flat(finding.rule.section("References"))))
    yield rows


def _where(change: Change) -> str:
    return change.place.short if change.place else IN_THE_PROGRAM


_LABEL = len("  seen in")


def _label(name: str) -> Line:
    return styled(f"  {name}", "dim")


def _flat(text: str) -> str:
    return " ".join(text.split())

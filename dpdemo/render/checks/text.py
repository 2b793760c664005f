"""Findings for people: a block each, the worst first, then one line that sums up."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dpdemo.preflight.findings import CheckReport, Finding
from dpdemo.preflight.registry import Rule, rules
from dpdemo.render.checks.words import place_text, seen_text, summary
from dpdemo.render.trimming import Trimmed

_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}


def print_findings(report: CheckReport, console: Console) -> None:
    """Print the findings and the summary."""
    known = {rule.code: rule for rule in rules()}
    for finding in report.findings:
        if finding.severity == "info":
            _print_line(finding, known[finding.code], console)
        else:
            _print_block(finding, known[finding.code], console)
            console.print()
    if report.findings and report.findings[-1].severity == "info":
        console.print()
    for note in report.notes:
        console.print(Text(f"note: {note}"))
    if report.notes:
        console.print()
    style = "bold red" if not report.ok else "bold green" if not report.findings else "bold"
    console.print(Text(summary(report), style=style))


def _heading(finding: Finding, rule: Rule) -> Text:
    heading = Text.assemble((finding.severity, _STYLES[finding.severity]), " ", (finding.code, "bold"))
    heading.append(f" {rule.name}")
    if finding.place is not None:
        heading.append(f"  {place_text(finding.place)}", style="dim")
    return heading


def _print_block(finding: Finding, rule: Rule, console: Console) -> None:
    console.print(_heading(finding, rule), soft_wrap=True)  # so that a terminal can open file:line
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=9, style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("", Text(finding.message))
    grid.add_row("  why", Text(_flat(rule.section("Why"))))
    grid.add_row("  before", Text(rule.section("Before"), style="red"))
    grid.add_row("  after", Text(rule.section("After"), style="green"))
    if finding.seen_in:
        grid.add_row("  seen in", Text(seen_text(finding)))
    grid.add_row("  see", Text(_flat(rule.section("References"))))
    console.print(Trimmed(grid))


def _print_line(finding: Finding, rule: Rule, console: Console) -> None:
    console.print(Text.assemble(_heading(finding, rule), f": {finding.message}"))


def _flat(text: str) -> str:
    return " ".join(text.split())

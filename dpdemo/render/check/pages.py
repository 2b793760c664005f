"""The pages of rules, and the list of all: what `--explain` and `--list` print."""

from collections.abc import Iterable
from itertools import groupby

from rich.console import Console
from rich.text import Text

from dpdemo.render.console import Canvas, Trimmed, grid
from dpdemo.reports.check import SECTIONS, RulePage

_FAMILY_TITLES = {
    "wrapper": "around the wrapper",
    "scatter": "cutting the arguments",
    "replica": "replicas are not the model",
    "gather": "joining the results",
    "loss": "losses and numbers",
    "threads": "a thread per GPU",
    "resources": "memory",
}


def print_page(rule: RulePage, console: Console) -> None:
    """Print a rule's page."""
    canvas = Canvas(console.width, console.encoding)
    console.print(Text.assemble((rule.code, "bold"), f" {rule.name} ({rule.severity}, {rule.family})"))
    console.print(canvas.text(rule.title, style="bold"))
    rows = grid(12, "fold", gap=1)
    for name in SECTIONS:
        text = rule.section(name)
        lines = text.splitlines() if name in ("Before", "After") else [" ".join(text.split())]
        rows.add_row(Text(name.lower(), "dim"), canvas.text(*lines))
    console.print(Trimmed(rows))
    console.print(canvas.text(f"silence it on a line: # dpdemo: ignore[{rule.code}]", style="dim"))


def print_list(rules: Iterable[RulePage], console: Console) -> None:
    """Print all rules, a line each, by family."""
    canvas = Canvas(console.width, console.encoding)
    for family, members in groupby(rules, key=lambda rule: rule.family):
        console.print(canvas.text(f"{family}: {_FAMILY_TITLES[family]}", style="bold"))
        rows = grid(7, 7, "fold", gap=1)
        for rule in members:
            rows.add_row(f"  {rule.code}", Text(rule.severity, "dim"), canvas.text(rule.title))
        console.print(Trimmed(rows))

"""The pages of rules, and the list of all: what `--explain` and `--list` print, and docs/rules.md."""

from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dpdemo.preflight.registry import SECTIONS, Rule, rules
from dpdemo.render.trimming import Trimmed

_FAMILY_TITLES = {
    "wrapper": "around the wrapper",
    "scatter": "cutting the arguments",
    "replica": "replicas are not the model",
    "gather": "joining the results",
    "loss": "losses and numbers",
    "threads": "a thread for each GPU",
    "resources": "memory",
}


def print_page(rule: Rule, console: Console) -> None:
    """Print a rule's page."""
    console.print(Text.assemble((rule.code, "bold"), f" {rule.name} ({rule.severity}, {rule.family})"))
    console.print(Text(rule.title, style="bold"))
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=12, style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name in SECTIONS:
        text = rule.section(name)
        grid.add_row(name.lower(), Text(text if name in ("Before", "After") else " ".join(text.split())))
    console.print(Trimmed(grid))
    console.print(Text(f"silence it on a line: # dpdemo: ignore[{rule.code}]", style="dim"))


def print_list(console: Console) -> None:
    """Print all rules, a line each, by family."""
    for family, members in groupby(rules(), key=lambda rule: rule.family):
        console.print(Text(f"{family}: {_FAMILY_TITLES[family]}", style="bold"))
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(width=7, no_wrap=True)
        grid.add_column(width=7, style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for rule in members:
            grid.add_row(f"  {rule.code}", rule.severity, Text(rule.title))
        console.print(Trimmed(grid))


def rules_table() -> str:
    """Write all rules as a Markdown table: code, name, severity, what is found, and how."""
    lines = ["| rule | name | severity | finds | how it is detected |", "|---|---|---|---|---|"]
    for rule in rules():
        seen = " ".join(rule.section("Seen by").split()).replace("|", "\\|")
        lines.append(f"| {rule.code} | {rule.name} | {rule.severity} | {rule.title} | {seen} |")
    return "\n".join(lines) + "\n"

"""docs/rules.md holds every rule as the registry has it; `python tests/checking/test_docs.py` writes it."""

from pathlib import Path

from dpdemo.checking.registry import rules
from dpdemo.reports.check import FAMILIES

FILE = Path(__file__).parent.parent.parent / "docs/rules.md"
BEGIN, END = "<!-- rules: begin -->\n", "<!-- rules: end -->\n"


def rules_table():
    """All rules as a Markdown table: code, name, severity, what is found, and how."""
    lines = ["| rule | name | severity | finds | how it is detected |", "|---|---|---|---|---|"]
    for rule in rules():
        seen = " ".join(rule.section("Seen by").split()).replace("|", "\\|")
        lines.append(f"| {rule.code} | {rule.name} | {rule.severity} | {rule.title} | {seen} |")
    return "\n".join(lines) + "\n"


def with_table(text):
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + rules_table() + END + rest.partition(END)[2]


def test_the_table_of_rules_is_that_of_the_registry():
    text = FILE.read_text()
    assert with_table(text) == text, "run python tests/checking/test_docs.py"


def test_every_rule_is_of_a_family():
    assert {known.code[:3] for known in rules()} == set(FAMILIES)


if __name__ == "__main__":
    FILE.write_text(with_table(FILE.read_text()))

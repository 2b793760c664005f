"""The table of docs/who-draws-what.md is that of the rules; run this file to renew it."""

import re
from pathlib import Path

from dpdemo.arithmetic.draws import RULES
from dpdemo.results.draws import DrawsReport, batches_text

PAGE = Path(__file__).parent.parent / "docs" / "who-draws-what.md"
HEAD = "| loader | rank 0 | rank 1 | twice | never | source |\n|---|---|---|---|---|---|\n"
ROWS = re.compile(r"(?<=" + re.escape(HEAD) + r")(\|.*\|\n)+")


def table():
    """The rows: 10 samples, batch size 4, 2 ranks."""
    return "".join(_row(rule.name, rule.source, rule.find(10, 2, 4, False)) for rule in RULES.values())


def _row(name, source, ranks):
    report = DrawsReport(name, source, 10, 4, tuple(tuple(map(tuple, batches)) for batches in ranks))
    shown = [batches_text(batches).replace("|", "/") for batches in report.ranks]
    return f"| `{name}` | {' | '.join(shown)} | {report.times.get(2, 0)} | {report.left_out} | {source} |\n"


def test_the_table_of_the_page_is_that_of_the_rules():
    found = ROWS.search(PAGE.read_text("utf-8"))
    assert found is not None
    assert found[0] == table(), "renew it: python tests/test_who_draws_what.py"


if __name__ == "__main__":
    page = PAGE.read_text("utf-8").replace("TABLE\n", HEAD + "| |\n")
    PAGE.write_text(ROWS.sub(lambda _: table(), page), "utf-8")

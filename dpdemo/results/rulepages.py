"""The pages of rules, and the list of all: the answers of `check --explain` and `--list`."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from dpdemo.results.findings import SECTIONS, RulePage
from dpdemo.results.table import Block, Table, stacked, styled

_FAMILY_TITLES = {
    "wrapper": "around the wrapper",
    "scatter": "cutting the arguments",
    "replica": "replicas are not the model",
    "gather": "joining the results",
    "loss": "losses and numbers",
    "threads": "a thread per GPU",
    "resources": "memory",
}


def rule_page(rule: RulePage) -> Iterator[Block]:
    """Yield a rule's page."""
    yield (rule.code, "bold"), (f" {rule.name} ({rule.severity}, {rule.family})", "")
    yield styled(rule.title, "bold")
    rows = Table((12, "fold"), gap=1)
    for name in SECTIONS:
        text = rule.section(name)
        lines = text.splitlines() if name in {"Before", "After"} else [" ".join(text.split())]
        rows.add(styled(name.lower(), "dim"), stacked(lines))
    yield rows
    yield styled(f"silence it on a line: # dpdemo: ignore[{rule.code}]", "dim")


def rule_list(rules: Iterable[RulePage]) -> Iterator[Block]:
    """Yield all rules, a line each, by family."""
    for family, members in groupby(rules, key=lambda rule: rule.family):
        yield styled(f"{family}: {_FAMILY_TITLES[family]}", "bold")
        rows = Table((7, 7, "fold"), gap=1)
        for rule in members:
            rows.add(f"  {rule.code}", styled(rule.severity, "dim"), rule.title)
        yield rows

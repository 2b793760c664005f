"""A check's report, in each of its forms, says what could not be looked at."""

import pytest

from dpdemo.results.check import CheckReport
from dpdemo.results.findings import Finding, RulePage

NOTE = "Net was not compared with one GPU: it cannot be copied"
REPORT = CheckReport("Net", 4, (), (8,), notes=(NOTE,))


@pytest.mark.parametrize("form", ["text", "json", "github", "sarif"])
def test_a_note_is_in_every_form(form):
    assert NOTE in REPORT.text(form)
    assert "not compared" not in CheckReport("Net", 4, (), (8,)).text(form)


def test_a_repair_of_several_lines_keeps_them_on_github():
    rule = RulePage("DP501", "loss", "error", "a loss", ())
    finding = Finding(rule, "error", "", "it is off", code_before="return loss", code_after="x = 1\nreturn x")
    report = CheckReport("Net", 4, (finding,), (8,))
    text = report.text("github")
    assert "::it is off%0AInstead of: return loss%0Awrite:%0Ax = 1%0Areturn x\n" in text

"""A check's report, in each of its forms, says what could not be looked at."""

import json
from dataclasses import replace

import pytest

from dpdemo.results.check import CheckReport
from dpdemo.results.findings import Change, Finding, Place, RulePage

NOTE = "Net was not compared with one GPU: it cannot be copied"
REPORT = CheckReport("Net", 4, (), (8,), notes=(NOTE,))


@pytest.mark.parametrize("form", ["text", "json", "github", "sarif", "markdown"])
def test_a_note_is_in_every_form(form):
    assert NOTE in REPORT.text(form)
    assert "not compared" not in CheckReport("Net", 4, (), (8,)).text(form)


def test_programs_read_notes_as_a_list():
    assert json.loads(REPORT.text("json"))["notes"] == [NOTE]
    (run,) = json.loads(REPORT.text("sarif"))["runs"]
    assert run["invocations"] == [
        {"executionSuccessful": True, "toolExecutionNotifications": [{"message": {"text": NOTE}}]}
    ]


def test_a_note_stands_before_the_summary():
    said = REPORT.text("text")
    assert (
        said
        == f"note: {NOTE}\n\nNet on 4 virtual GPUs, batch size 8: no pitfalls in what could be looked at\n"
    )


def test_a_repair_of_several_lines_keeps_them_on_github():
    rule = RulePage("DP501", "loss", "error", "a loss", ())
    finding = Finding(rule, "error", "", "it is off", code_before="return loss", code_after="x = 1\nreturn x")
    report = CheckReport("Net", 4, (finding,), (8,))
    text = report.text("github")
    assert "::it is off%0AInstead of: return loss%0Awrite:%0Ax = 1%0Areturn x\n" in text


RULE = RulePage("DP301", "state", "error", "state", (("Why", "replicas"), ("References", "none")))
IN_THE_MODEL = Change(Place("net.py", 12), "self.mean", "mean")
IN_THE_PROGRAM = Change(None, "y = model(x)", "y = model(x, mean)")
WIDE = Finding(RULE, "error", "mean", "it is lost", Place("net.py", 3), code_before="a", code_after="b")


@pytest.mark.parametrize("form", ["text", "markdown", "github"])
def test_all_changes_of_a_repair_are_told_in_order_and_where_they_are(form):
    report = CheckReport("Net", 4, (replace(WIDE, also=(IN_THE_MODEL, IN_THE_PROGRAM)),), (8,))
    text = report.text(form)
    told = [
        "net.py:12",
        "self.mean",
        "mean",
        "where the model is called",
        "y = model(x)",
        "y = model(x, mean)",
    ]
    at = text.index("it is lost")
    for part in told:
        at = text.index(part, at)
    assert "where the model is called" not in CheckReport("Net", 4, (WIDE,), (8,)).text(form)


def test_programs_read_the_further_changes_of_a_repair():
    report = CheckReport("Net", 4, (replace(WIDE, also=(IN_THE_MODEL, IN_THE_PROGRAM)),), (8,))
    (finding,) = json.loads(report.text("json"))["findings"]
    assert finding["also"] == [
        {"before": "self.mean", "after": "mean", "file": "net.py", "line": 12},
        {"before": "y = model(x)", "after": "y = model(x, mean)", "file": None, "line": None},
    ]

"""A check's report, in each of its forms, says what could not be looked at."""

import json
from typing import get_args

import pytest

from dpdemo.preflight.findings import CheckReport
from dpdemo.render.checks import CheckFormat, as_text

NOTE = "Net was not compared with one GPU: it cannot be copied"
REPORT = CheckReport("Net", 4, (), (8,), notes=(NOTE,))


@pytest.mark.parametrize("form", get_args(CheckFormat))
def test_a_note_is_in_every_form(form):
    assert NOTE in as_text(REPORT, form)
    assert "not compared" not in as_text(CheckReport("Net", 4, (), (8,)), form)


def test_programs_read_notes_as_a_list():
    assert json.loads(as_text(REPORT, "json"))["notes"] == [NOTE]
    (run,) = json.loads(as_text(REPORT, "sarif"))["runs"]
    assert run["invocations"] == [
        {"executionSuccessful": True, "toolExecutionNotifications": [{"message": {"text": NOTE}}]}
    ]


def test_a_note_stands_before_the_summary():
    assert as_text(REPORT, "text") == f"note: {NOTE}\n\nNet on 4 virtual GPUs, batch size 8: no pitfalls\n"

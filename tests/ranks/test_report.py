"""The report of ranks: a part that fails costs its own line."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from rankevents import TRAINED, epoch

from dpdemo.ranks import report
from dpdemo.ranks.log import RankLog

PROGRAM = SimpleNamespace(arguments=())


def logs():
    found = [RankLog(number, Path("none.jsonl")) for number in (0, 1)]
    for log in found:
        for event in (*TRAINED, epoch(0, 1)):
            log.take(event)
    return found


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("samples_of", "samples"),
        ("read_for_all", "samples"),
        ("coverage", "coverage"),
        ("find_mistakes", "mistakes"),
    ],
)
def test_a_part_that_fails_costs_its_own_line(monkeypatch, name, part):
    def fail(*_, **__):
        raise ZeroDivisionError("no ranks")

    whole = report.summary(PROGRAM, logs(), (), are_stuck=False)
    monkeypatch.setattr(report, name, fail)
    found = report.summary(PROGRAM, logs(), (), are_stuck=False)
    (note,) = [each for each in found.mistakes if each not in whole.mistakes]
    assert (note.kind, note.text) == ("note", f"`{part}` could not be judged: ZeroDivisionError: no ranks")
    assert [rank.models for rank in found.ranks] == [rank.models for rank in whole.ranks]


def test_a_report_without_faults_has_no_such_line():
    whole = report.summary(PROGRAM, logs(), (), are_stuck=False)
    assert [each.text for each in whole.mistakes] == [
        "Each of 2 ranks drew all 2 samples: an epoch is 2 epochs"
    ]
    assert all(rank.samples for rank in whole.ranks)
    assert whole.coverage

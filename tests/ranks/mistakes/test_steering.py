"""The ranks read other numbers at one line, and then did not make the same collectives."""

import signal
from pathlib import Path

import pytest
from rankevents import AT

from dpdemo.ranks.events import Failure, Read
from dpdemo.ranks.launch import Outcome
from dpdemo.ranks.log import RankLog
from dpdemo.ranks.mistakes import find_mistakes


def run(first, second, how="bool", *, are_stuck=True, more=()):
    noted = [
        [Read(AT, n, value, n, how, True) for n, value in enumerate(values, 1)] for values in (first, second)
    ]
    events = {0: [*noted[0], *more], 1: noted[1]}
    return find_mistakes(events, were_stopped=True, are_stuck=are_stuck)


def test_the_branch_that_one_rank_took_is_named():
    (found,) = run((0, 0, 0), (0, 0, 1))
    assert found.text == "The ranks read other numbers here just before, False on rank 0, True on rank 1"
    assert (found.at, found.kind) == (AT, "mistake")


def test_a_loss_that_always_differs_is_a_note():
    (found,) = run((1.5, 2.5), (3.5, 0.5), "float")
    assert found.kind == "note"


@pytest.mark.parametrize(
    ("outcome", "are_stuck"),
    [
        (Outcome(), False),
        (Outcome(1, ("The ranks wait for each other",)), True),
        (Outcome(130, ("SIGINT: all ranks were stopped",), stopped_by=signal.SIGINT), False),
        (Outcome(3, ("rank 1 failed",), (RankLog(1, Path("none.jsonl")),)), False),
    ],
)
def test_ranks_that_ended_failed_or_were_interrupted_get_no_guess(outcome, are_stuck):
    assert outcome.are_stuck == are_stuck
    assert bool(run((0, 1), (1, 0), are_stuck=outcome.are_stuck)) == are_stuck


def test_ranks_that_failed_have_an_error_to_read():
    assert run((0, 0), (0, 1), more=[Failure("ValueError", AT)]) == ()


def test_equal_numbers_are_right():
    assert run((0, 1), (0, 1)) == ()

"""The verdicts on ranks, from their logs alone: of ranks that dpdemo launched, and of a program's own."""

import itertools
from pathlib import Path

import pytest

from dpdemo.ranks import watch as module
from dpdemo.ranks.events import Collective, Ended, Failure, Group, Joined
from dpdemo.ranks.log import RankLog
from dpdemo.ranks.watch import LaunchedWorld, Verdict, blocked, closed, watch

GROUP = Group("0 of 2", (0, 1))
ENDED = Ended({})


def made(op, at="train.py:9"):
    return Collective("0 of 2", 1, op, at, ((1,),), "float32", 4)


def world(*events_of_ranks, codes=(None, None)):
    logs = [RankLog(number, Path("none.jsonl")) for number, _ in enumerate(events_of_ranks)]
    for log, events, code in zip(logs, events_of_ranks, codes, strict=True):
        log.code = code
        for event in (Joined(log.number, 2, ""), GROUP, *events):
            log.take(event)
    return logs


MIXED = world([made("allreduce_")], [made("barrier")])


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by a second each time that it is read."""
    monkeypatch.setattr(module.time, "monotonic", itertools.count(1.0).__next__)


def test_ranks_in_different_collectives_are_named_whoever_launched_them():
    assert blocked(MIXED) == LaunchedWorld().judge(MIXED)
    assert blocked(MIXED).message[0].startswith("The ranks are not in the same collective")


def test_ranks_that_compute_get_no_verdict():
    assert LaunchedWorld().judge(world([], [])) is None
    assert blocked(world([], [])) is None


def test_launched_ranks_that_all_ended_well_get_a_verdict():
    assert LaunchedWorld().judge(world([ENDED], [ENDED], codes=(0, 0))) == Verdict()


@pytest.mark.usefixtures("clock")
def test_the_others_get_a_moment_before_a_rank_that_failed_is_named():
    error = Failure("ValueError: a bad row", "train.py:7", t=1.0)
    launched, ranks = LaunchedWorld(), world([], [error])
    verdicts = [launched.judge(ranks) for _ in range(4)]
    assert verdicts[:2] == [None, None]
    assert verdicts[-1].message[0].startswith("rank 1 failed: ValueError: a bad row at train.py:7")
    assert verdicts[-1].failures == (ranks[1],)


def test_a_lost_connection_is_no_failure_of_its_own():
    lost = Failure("RuntimeError: Connection closed", "train.py:7", is_lost=True, t=1.0)
    verdict = LaunchedWorld().judge(world([lost], [], codes=(1, -9)))
    assert verdict.code == 137
    assert verdict.message[0] == "rank 1 was ended by SIGKILL; all ranks were stopped"


def test_ranks_of_a_program_are_judged_at_its_end():
    assert closed(world([ENDED], [ENDED], codes=(0, 0))) == ()
    assert closed(world([ENDED], [], codes=(0, 1)))[0].startswith("rank 1 ended before its time")


def test_ranks_whose_notes_are_incomplete_are_not_judged():
    ranks = world([made("allreduce_")], [made("barrier")])
    ranks[0].is_broken = True
    assert blocked(ranks) is None


def test_a_bug_in_a_search_costs_a_line_and_the_ranks_continue(monkeypatch, capfd):
    def stuck(_):
        raise ZeroDivisionError("no ranks")

    monkeypatch.setattr(module, "stuck", stuck)
    monkeypatch.setattr(module.sys, "__stderr__", module.sys.stderr)
    assert [blocked(world([], [])) for _ in range(2)] == [None, None]
    note = "note: `stuck` could not be judged: ZeroDivisionError: no ranks. This is a bug in dpdemo."
    assert capfd.readouterr().err.count(note) == 1


def test_the_watcher_looks_until_nobody_asks_any_more():
    looks = iter([[("a", None)], [("a", Verdict(1)), ("b", Verdict())], None])
    assert list(watch(lambda: next(looks), 0)) == [("a", Verdict(1)), ("b", Verdict())]

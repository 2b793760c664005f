"""Finding ranks that can never continue, from their notes."""

import json

import pytest

from dpdemo.running.ranklog import RankLog
from dpdemo.running.rankwatch import stuck

GROUP = {"e": "group", "group": "0 of 2", "ranks": [0, 1]}
IN_SETUP = {"e": "wait", "what": "init_process_group", "at": "train.py:4", "is_setup": True}
IN_REDUCE = [
    {"e": "collective", "group": "0 of 2", "op": "allreduce_", "n": 1, "bytes": 4, "shapes": [[1]],
     "dtype": "float32", "at": "train.py:9"},
    {"e": "wait", "what": "all_reduce", "at": "train.py:9", "is_setup": False},
]  # fmt: skip


def world(rank):
    return {"e": "world", "rank": rank, "size": 2, "id": "", "at": "train.py:4"}


@pytest.fixture
def ranks(tmp_path):
    def noted(*events_of_ranks):
        logs = []
        for number, events in enumerate(events_of_ranks):
            path = tmp_path / f"{number}.jsonl"
            path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
            logs.append(RankLog(number, path))
            logs[-1].read()
        return logs

    return noted


def test_a_rank_that_is_slower_in_setting_up_is_not_taken_for_hung(ranks):
    logs = ranks([world(0), GROUP, *IN_REDUCE], [IN_SETUP])
    assert stuck(logs) == ()


def test_a_rank_that_sets_up_once_more_by_itself_is(ranks):
    logs = ranks([world(0), GROUP, *IN_REDUCE], [world(1), GROUP, IN_SETUP])
    assert stuck(logs)[0] == "The ranks wait for each other; NCCL would hang:"


def test_a_rank_waiting_for_the_setup_of_an_ended_rank_is_found(ranks):
    logs = ranks([], [IN_SETUP])
    logs[0].code = 0
    first, *_, last = stuck(logs)
    assert first == "rank 1 waits for rank 0, which has ended:"
    assert last == "  Every rank has to call init_process_group, with the same number of ranks."


def test_a_rank_that_waited_for_others_in_setting_up_may_be_the_last_to_end(ranks):
    logs = ranks([IN_SETUP, world(0)], [world(1)])
    logs[1].code = 0
    assert stuck(logs) == ()

"""Finding ranks that can never continue, from their notes."""

from pathlib import Path

import pytest

from dpdemo.ranks.deadlocks import left_alone, mismatch, stuck
from dpdemo.ranks.events import Collective, Ended, Group, Joined, Wait
from dpdemo.ranks.log import RankLog

GROUP = Group("0 of 2", (0, 1))
END = Ended({})
IN_SETUP = Wait("init_process_group", "train.py:4", is_setup=True)
IN_REDUCE = [
    Collective("0 of 2", 1, "allreduce_", "train.py:9", ((1,),), "float32", 4),
    Wait("all_reduce", "train.py:9"),
]


def world(rank):
    return Joined(rank, 2, "", "train.py:4")


def ranks(*events_of_ranks):
    logs = [RankLog(number, Path("none.jsonl")) for number, _ in enumerate(events_of_ranks)]
    for log, events in zip(logs, events_of_ranks, strict=True):
        for event in events:
            log.take(event)
    return logs


def test_a_rank_that_is_slower_in_setting_up_is_not_taken_for_hung():
    logs = ranks([world(0), GROUP, *IN_REDUCE], [IN_SETUP])
    assert stuck(logs) == ()


def test_a_rank_that_sets_up_once_more_by_itself_is():
    logs = ranks([world(0), GROUP, *IN_REDUCE], [world(1), GROUP, IN_SETUP])
    assert stuck(logs)[0] == "The ranks wait for each other; NCCL would hang:"


def test_a_rank_waiting_for_the_setup_of_an_ended_rank_is_found():
    logs = ranks([], [IN_SETUP])
    logs[0].code = 0
    first, *_, last = stuck(logs)
    assert first == "rank 1 waits for rank 0, which has ended:"
    assert last == "  Every rank has to call init_process_group, with the same number of ranks."


def test_a_rank_that_waited_for_others_in_setting_up_may_be_the_last_to_end():
    logs = ranks([IN_SETUP, world(0)], [world(1)])
    logs[1].code = 0
    assert stuck(logs) == ()


def advice_of(op, **values):
    begun = [
        Collective("0 of 2", 1, "allreduce_", "train.py:9", ((1,),), "float32", 4, backward=4),
        Collective("0 of 2", 1, op, "train.py:11", backward=3, **values),
    ]
    return mismatch(ranks(*([world(rank), GROUP, each] for rank, each in enumerate(begun))))[-1]


def test_a_collective_of_one_rank_alone_is_one_of_two_causes():
    advice = advice_of("barrier")
    assert "under `if rank == 0:`, has to be called by all" in advice
    assert "If a rank left its loop early, all need as many steps" in advice


def test_the_same_collective_of_another_pass_is_a_number_of_steps():
    assert advice_of("allreduce_", dtype="int64").startswith("  Every rank needs as many steps")


def sending(peer):
    at = f"train.py:{7 + peer}"
    return [Collective("0 of 2", 1, "send", at, ((1,),), "float32", 4, peer=peer, tag=0), Wait("send", at)]


def receiving(peer):
    return [Collective("0 of 2", 1, "recv_", "train.py:9", ((1,),), "float32", 4, peer=peer, tag=0)]


def test_ranks_that_both_send_first_have_to_take_turns():
    logs = ranks([world(0), GROUP, *sending(1)], [world(1), GROUP, *sending(0)])
    assert stuck(logs)[-1].endswith("turn the order on one side.")


def test_a_send_whose_peer_is_elsewhere_lacks_its_recv():
    elsewhere = ranks([world(0), GROUP, *sending(1)], [world(1), GROUP, *IN_REDUCE])
    assert stuck(elsewhere)[-1].startswith("  Each send needs a recv on the other rank")
    ended = ranks([world(0), GROUP, *sending(1)], [world(1), GROUP])
    ended[1].code = 0
    assert stuck(ended)[-1].startswith("  Each send needs a recv on the other rank")


def mismatch_of(*values):
    begun = [Collective("0 of 2", 1, "allreduce_", "train.py:9", **each) for each in values]
    return mismatch(ranks(*([world(rank), GROUP, each] for rank, each in enumerate(begun))))


@pytest.mark.parametrize(
    ("one", "other", "is_wrong"),
    [
        ([(2, 3)], [(6,)], False),  # a flat view: NCCL counts elements
        ([(), (4,)], [(), (2, 2)], False),
        ([(2, 3)], [(3, 2)], True),
        ([(2, 3)], [(5,)], True),
        ([(6,)], [(6,), (1,)], True),
    ],
)
def test_shapes_differ_unless_one_is_a_flat_view_of_the_other(one, other, is_wrong):
    assert bool(mismatch_of({"same": tuple(one)}, {"same": tuple(other)})) == is_wrong


def test_a_reduction_other_than_a_sum_is_shown():
    _, first, second, *_ = mismatch_of({"reduce": "SUM"}, {"reduce": "MAX"})
    assert first == "  rank 0: all_reduce #1 at train.py:9"
    assert second == "  rank 1: all_reduce #1, MAX at train.py:9"


def test_other_splits_are_shown():
    _, first, second, *_ = mismatch_of({"splits": ((2, 2), (2, 2))}, {"splits": ((2, 2), (1, 3))})
    assert first == "  rank 0: all_reduce #1 at train.py:9"
    assert second == "  rank 1: all_reduce #1 (gets 2, 2; sends 1, 3) at train.py:9"


def ended(*events_of_ranks):
    return ranks(*([world(rank), GROUP, *events, END] for rank, events in enumerate(events_of_ranks)))


def test_a_collective_that_only_one_rank_began_is_named_though_none_waited():
    first, begun, last, advice = left_alone(ended([], IN_REDUCE[:1]))
    assert first == "rank 1 began what rank 0 has ended without; NCCL would hang:"
    assert begun == "  rank 1: all_reduce #1 of [1] float32 at train.py:9"
    assert last == "  rank 0 had begun no collective"
    assert "under `if rank == 0:`, has to be called by all" in advice


def test_a_send_that_nobody_received_is_named_though_none_waited():
    assert left_alone(ended(sending(1)[:1], []))[-1].startswith("  Each send needs a recv")
    assert left_alone(ended(sending(1)[:1], receiving(0))) == ()


def test_groups_of_other_names_and_ranks_without_an_end_are_not_judged():
    assert left_alone(ranks([world(0), END], [world(1), GROUP, IN_REDUCE[0], END])) == ()
    assert left_alone(ranks([world(0), GROUP], [world(1), GROUP, IN_REDUCE[0], END])) == ()
    assert left_alone(ended(IN_REDUCE[:1], IN_REDUCE[:1])) == ()

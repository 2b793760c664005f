"""Nodes, ranks and indices, stored by run."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dpdemo.reports.devices import Devices, Tiled
from dpdemo.reports.distribution import Distribution, NodeRun

GPUS = Devices.of("cuda", range(8))


def over(*nodes, batch_size=30):
    return Distribution(nodes, batch_size, batch_size, 0, 0, 0, (), ())


def test_a_rank_is_placed_by_node_and_local_rank():
    place = over(NodeRun(0, 4, 0, GPUS)).place(19)
    assert (place.node, place.local_rank, place.device) == (2, 3, "cuda:3")
    assert str(place) == "rank 19 (node 2, local rank 3, cuda:3)"


def test_nodes_may_differ():
    distribution = over(NodeRun(0, 2, 0, GPUS), NodeRun(2, 1, 16, GPUS[:2]))
    assert (distribution.world_size, distribution.num_nodes) == (18, 3)
    assert (distribution.place(17).node, distribution.place(17).local_rank) == (2, 1)


@pytest.mark.parametrize("rank", [-1, 32])
def test_a_rank_that_is_not_there_is_an_error(rank):
    with pytest.raises(IndexError, match="expected a rank below 32"):
        over(NodeRun(0, 4, 0, GPUS)).place(rank)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(1, 5))
def test_tiled_devices_read_like_the_list_they_stand_for(pattern, times):
    tiled = Devices.of("cuda", pattern).tiled(times)
    assert list(tiled) == [f"cuda:{ordinal}" for ordinal in pattern] * times
    assert len(tiled) == len(pattern) * times
    assert tiled.name(len(tiled) - 1) == f"cuda:{pattern[-1]}"
    assert list(tiled[1:]) == list(tiled)[1:]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(1, 5))
def test_equal_devices_are_equal_however_they_were_made(pattern, times):
    assert Devices.of("cuda", pattern).tiled(times) == Devices.of("cuda", pattern * times)


def test_tiled_ordinals_end_where_they_end():
    with pytest.raises(IndexError):
        Tiled(range(3), 2)[6]


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        (GPUS.tiled(4), "cuda:0–7 ×4"),
        (Devices.cpu().tiled(9), "cpu ×9"),
        (Devices.cpu().tiled(3), "cpu, cpu, cpu"),
        (GPUS.tiled(1), "cuda:0–7"),
    ],
)
def test_tiled_devices_have_a_short_form(devices, text):
    assert str(devices) == text

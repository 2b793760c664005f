"""Meshes of one process, or of the ranks that tensor parallelism joins."""

import pytest
import torch

from dpdemo.ranks.against.shards import _inbox_at
from dpdemo.ranks.against.state import owner_of
from dpdemo.ranks.against.worlds import _shape_of
from dpdemo.ranks.events import NotedStep


@pytest.mark.parametrize(
    ("joined", "shape", "num_ranks", "expected"),
    [
        ([0], (2, 2), 4, (1, 1)),
        ([0, 1], (2, 2), 4, (1, 2)),
        ([0, 2], (2, 2), 4, (2, 1)),
        ([0, 1], (2, 2, 2), 8, (1, 1, 2)),
        ([0, 1, 2, 3], (2, 2, 2), 8, (1, 2, 2)),
        ([0], (0, 2), 4, (1, 1)),
    ],
)
def test_a_mesh_keeps_the_dimensions_of_the_joined_ranks(joined, shape, num_ranks, expected):
    assert _shape_of(joined, shape, num_ranks) == expected


def test_the_first_joined_rank_owns_the_rows():
    step = NotedStep(0, 1, "train.py:9", 0, owner=2)
    assert [owner_of(3, [step]), owner_of(3, [])] == [2, 3]


def test_a_rank_finds_a_box_in_its_shard_alone():
    whole = torch.arange(12.0).reshape(4, 3)
    assert torch.equal(_inbox_at(whole, ((2, 0), (2, 3))), whole[2:])
    assert _inbox_at(whole, ((3, 0), (2, 3))) is None
    assert _inbox_at(whole, ((4, 0), (0, 3))).numel() == 0

"""The random states from which data sets draw, in this process and in workers of a loader."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from dpdemo.ranks.observe import fetches
from dpdemo.ranks.observe.fetches import Board
from dpdemo.ranks.observe.notes import Notes


@pytest.fixture
def board(monkeypatch, tmp_path):
    notes = Notes(tmp_path)
    fetches.watch(notes)
    monkeypatch.setattr(Board, "now", Board())
    yield Board.now
    notes.close()


class Draws:
    def __init__(self, draw):
        self.draw = draw

    def __len__(self):
        return 4

    def __getitem__(self, index):
        self.draw()
        return index


@pytest.mark.parametrize(
    ("draw", "names"),
    [
        (lambda: None, set()),
        (lambda: torch.rand(3), {"torch"}),
        (lambda: np.random.rand(3), {"numpy"}),  # noqa: NPY002 - the global numbers are the case
        (lambda: (random.random(), torch.rand(1)), {"random", "torch"}),  # noqa: S311 - not for secrets
    ],
)
def test_the_libraries_from_which_a_data_set_draws_are_known(board, draw, names):
    assert next(iter(DataLoader(Draws(draw), batch_size=2))).tolist() == [0, 1]
    assert set(board.states()) == names


@pytest.mark.usefixtures("board")
def test_equal_seeds_are_equal_states_and_others_are_not(monkeypatch):
    found = []
    for seed in (1, 1, 2):
        monkeypatch.setattr(Board, "now", Board())
        torch.manual_seed(seed)
        list(DataLoader(Draws(lambda: torch.rand(1)), batch_size=2))
        found.append(Board.now.states()["torch"])
    assert (found[0] == found[1], found[0] == found[2]) == (True, False)


def test_each_worker_tells_its_state_through_shared_memory(board):
    list(DataLoader(Draws(lambda: torch.rand(1)), batch_size=1, num_workers=2))
    assert len(set(board.states()["torch"])) == 2
    assert set(board.states()) == {"torch"}


def test_a_state_that_cannot_be_read_leaves_the_batch_as_it_is(board, monkeypatch):
    def unreadable():
        raise KeyError("key")

    monkeypatch.setattr(fetches, "states", unreadable)
    assert next(iter(DataLoader(Draws(lambda: None), batch_size=2))).tolist() == [0, 1]
    assert board.states() == {}

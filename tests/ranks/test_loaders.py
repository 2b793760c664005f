"""The DataLoaders of a rank: which of them are one and the same in its report."""

import pytest
from torch.utils.data import DataLoader

from dpdemo.ranks.observe.loaders import LoaderNames


@pytest.fixture
def names():
    return LoaderNames()


def make(names, *, draw=False):
    loader = DataLoader(range(4))
    name = names.name(loader)
    if draw:
        names.drawn(loader)
    return loader, name


def test_loaders_that_wait_side_by_side_have_names_of_their_own(names):
    made = [make(names) for _ in range(3)]
    first, second, third = (name for _, name in made)
    assert (second, third) == (f"{first} (loader 2)", f"{first} (loader 3)")


def test_a_loader_made_anew_for_each_epoch_keeps_its_name(names):
    assert len({make(names, draw=True)[1] for _ in range(3)}) == 1


def test_loaders_that_two_lines_ask_a_function_for_have_names_of_their_own(names):
    first = make(names, draw=True)[1]
    assert make(names, draw=True)[1] == f"{first} (loader 2)"

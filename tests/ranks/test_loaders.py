"""The DataLoaders of a rank: which of them are one and the same in its report."""

import numpy as np
import pytest
from torch.utils.data import DataLoader, Subset

from dpdemo.ranks.observe.datasets import contents, fingerprint, part_of
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


class Odd:
    """A data set whose attributes a library made: a class of NumPy, and an array that cannot be cut."""

    def __init__(self, rank):
        self.rank, self.kind, self.whole = rank, np.int64, Uncut()


class Uncut:
    shape = (2,)

    def tobytes(self):
        raise NotImplementedError


def test_shards_of_a_data_set_with_odd_attributes_are_told_apart():
    assert fingerprint(Odd(0)) == fingerprint(Odd(0)) != fingerprint(Odd(1))
    assert contents(Odd(0)) == contents(Odd(1))


def test_a_part_of_a_data_set_is_known_by_its_length_and_order():
    data = list(range(8))
    one, same, other = (Subset(data, order) for order in ([1, 2], [1, 2], [2, 1]))
    assert part_of(one) == part_of(same) != part_of(other)
    assert (part_of(one)[0], part_of(data)) == (2, ())

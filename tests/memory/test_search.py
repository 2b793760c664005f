"""The largest number that fits is found in few tries, and was tried itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.memory.search import LIMIT, largest_that_fits, past_steps


class Tank:
    """Room that falls by a slope a number and by a step every few of them, as a batch's does over GPUs."""

    def __init__(self, capacity, slope, step=0, every=1):
        self.capacity, self.slope, self.step, self.every = capacity, slope, step, every
        self.tried = []

    def room(self, number):
        assert number not in self.tried, "each number is tried once"
        self.tried.append(number)
        return self.room_of(number)

    def room_of(self, number):
        return self.capacity - self.slope * number - self.step * -(-number // self.every)


@given(
    capacity=st.integers(0, 10**12),
    slope=st.integers(1, 10**7),
    step=st.integers(0, 10**8),
    every=st.integers(1, 16),
    first=st.integers(1, 10**6),
)
def test_the_answer_fits_and_its_successor_does_not(capacity, slope, step, every, first):
    tank = Tank(capacity, slope, step, every)
    found = largest_that_fits(tank.room, first)
    assert found == 0 or tank.room_of(found) >= 0
    assert tank.room_of(found + 1) < 0
    assert found in tank.tried or found == 0
    assert found + 1 in tank.tried
    assert len(tank.tried) <= 60


@pytest.mark.parametrize("first", [1, 30, 4096])
def test_a_line_takes_a_handful_of_tries(first):
    tank = Tank(capacity=1_000_000, slope=997)
    assert largest_that_fits(tank.room, first) == 1003
    assert len(tank.tried) <= 6


def test_where_not_even_one_fits_it_is_zero_and_one_was_tried():
    tank = Tank(capacity=-1, slope=1)
    assert largest_that_fits(tank.room, 64) == 0
    assert tank.tried == [64, 1]


def test_where_everything_fits_it_is_the_limit():
    assert largest_that_fits(Tank(capacity=10, slope=0).room, 5) == LIMIT


@given(fitting=st.sets(st.integers(1, 40)), reach=st.integers(0, 6))
def test_a_number_past_some_that_do_not_fit_is_found_if_it_is_within_reach(fitting, reach):
    found = past_steps(lambda number: 0 if number in fitting else -1, 0, reach)
    assert found in fitting | {0}
    assert not fitting & set(range(found + 1, found + reach + 1))

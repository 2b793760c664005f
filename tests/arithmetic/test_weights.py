"""Unequal splits by the largest remainder, against the rule written out device by device."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.arithmetic.weights import exact_batch_sizes_near, short_list, split_by_chunks, split_by_weights

numbers = st.integers(0, 50) | st.decimals("0.001", 100, places=3).map(float)
weight_lists = st.lists(numbers, min_size=1, max_size=40).filter(any)
repeated = st.lists(st.tuples(numbers, st.integers(1, 9)), min_size=1, max_size=8).map(
    lambda runs: [weight for weight, count in runs for _ in range(count)]
)
weightings = (weight_lists | repeated).filter(any)
batch_sizes = st.integers(1, 500) | st.integers(1, 10**15)


def largest_remainder(batch_size, weights):
    """The rule as documented: whole parts first, then a row each by fraction, equal ones by device."""
    exact = [Fraction(str(weight)) for weight in weights]
    dues = [batch_size * weight / sum(exact) for weight in exact]
    rows = [math.floor(due) for due in dues]
    waiting = sorted(range(len(rows)), key=lambda device: (rows[device] - dues[device], device))
    for device in waiting[: batch_size - sum(rows)]:
        rows[device] += 1
    return tuple(rows)


@given(batch_sizes, weightings)
def test_any_split_is_the_rule_written_out_device_by_device(batch_size, weights):
    assert split_by_weights(batch_size, weights).rows() == largest_remainder(batch_size, weights)


@given(batch_sizes, weightings)
def test_devices_without_rows_are_idle(batch_size, weights):
    split = split_by_weights(batch_size, weights)
    assert split.chunks == tuple((device, rows) for device, rows in enumerate(split.rows()) if rows)
    assert split.idle() == tuple(device for device, rows in enumerate(split.rows()) if not rows)
    assert len(split.used()) + split.num_idle == split.num_devices == len(weights)
    assert (split.largest, split.smallest) == (max(split.sizes()), min(split.sizes()))


@given(st.integers(1, 1000), st.integers(1, 60))
def test_equal_weights_are_torch_chunk_where_torch_chunk_is_even(batch_size, num_devices):
    rows = split_by_weights(batch_size, [3] * num_devices).rows()
    assert max(rows) - min(rows) <= 1
    assert list(rows) == sorted(rows, reverse=True)
    chunks = tuple(map(len, torch.empty(batch_size, 0).chunk(num_devices)))
    if len(chunks) == num_devices and len(set(chunks)) == 1:
        assert rows == chunks


@given(st.lists(st.integers(0, 40), min_size=1, max_size=20).filter(any), st.data())
def test_chunks_are_exact_and_a_short_batch_gives_nobody_more(chunks, data):
    assert split_by_chunks(sum(chunks), chunks).rows() == tuple(chunks)
    short = data.draw(st.integers(1, sum(chunks)))
    rows = split_by_chunks(short, chunks).rows()
    assert sum(rows) == short
    assert all(got <= chunk for got, chunk in zip(rows, chunks, strict=True))


def test_batch_larger_than_chunks_is_refused():
    with pytest.raises(ValueError, match=r"expected at most 30 rows \(4, 13, 13\), got 34"):
        split_by_chunks(34, (4, 13, 13))


def test_an_empty_batch_gives_an_empty_chunk_to_each_device_with_a_weight():
    split = split_by_weights(0, (0, 2, 1))
    assert (split.used(), split.sizes(), split.num_idle) == ((1, 2), (0, 0), 1)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((), "at least one weight above 0, got none"),
        ((0, 0.0), "at least one weight above 0, got 0, 0.0"),
        ((1, -1), "a weight of 0 or more, got -1"),
        ((1, math.nan), "a weight of 0 or more, got nan"),
        ((1, math.inf), "a weight of 0 or more, got inf"),
    ],
)
def test_impossible_weights_are_errors(weights, message):
    with pytest.raises(ValueError, match=message):
        split_by_weights(3, weights)


@pytest.mark.parametrize("weight", ["1", None, 1j])
def test_invalid_weights_are_refused(weight):
    with pytest.raises(TypeError, match="expected a number as weight, got"):
        split_by_weights(3, (1, weight))


@given(st.integers(1, 1000), weightings)
def test_exact_batch_sizes_are_the_nearest_in_which_each_gets_its_due(batch_size, weights):
    exact = [Fraction(str(weight)) for weight in weights]
    for size in exact_batch_sizes_near(batch_size, weights):
        dues = [size * weight / sum(exact) for weight in exact]
        assert tuple(dues) == split_by_weights(size, weights).rows()


def test_the_nearest_exact_batch_sizes_lie_on_both_sides():
    assert exact_batch_sizes_near(32, (1, 2, 2)) == (30, 35)
    assert exact_batch_sizes_near(30, (1, 2, 2)) == (30,)
    assert exact_batch_sizes_near(3, (1, 2, 2)) == (5,)


def test_messages_write_equal_neighbours_together():
    assert short_list((4, 13, 13, 0.5)) == "4, 13, 13, 0.5"
    assert short_list((1,) + (2,) * 20) == "1, 2 × 20"
    assert short_list(range(20)).endswith("7, ...")

"""Comparing two records of a tensor, and the tolerances by which they are equal."""

import math

import pytest
import torch
from torch.testing import _comparison

from dpdemo.arithmetic.tolerance import TOLERANCES, tolerance_of
from dpdemo.replaying.checksum import record_tensor
from dpdemo.replaying.verdict import compare


def against(expected, got):
    return compare(3, record_tensor("x", expected), record_tensor("x", got))


def test_the_tolerances_are_torchs_own():
    known = {str(dtype).removeprefix("torch."): pair for dtype, pair in _comparison._DTYPE_PRECISIONS.items()}
    assert {name: tuple(pair) for name, pair in TOLERANCES.items()}.items() <= known.items()


@pytest.mark.parametrize("dtype", ["int64", "bool", "uint8"])
def test_whole_numbers_have_no_tolerance(dtype):
    assert tolerance_of(dtype) == (0, 0)


def test_equal_tensors_do_not_differ():
    assert against(torch.tensor([1.0, math.nan]), torch.tensor([1.0, math.nan])) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_assert_close_accepts_is_round_off_and_what_it_refuses_is_not(dtype):
    expected = torch.tensor([1.0, -2.0, 3.0], dtype=dtype)
    tolerance = tolerance_of(str(dtype).removeprefix("torch."))
    for factor in (0.4, 40):
        got = (expected.double() * (1 + factor * tolerance.relative)).to(dtype)
        if dtype == torch.bfloat16 and factor < 1:
            got = torch.tensor([1.0078125, -2.0, 3.0], dtype=dtype)
        close = factor < 1
        if dtype == torch.float32 and not close:
            got = got + 1e-3
        try:
            torch.testing.assert_close(got, expected)
        except AssertionError:
            assert not close
        else:
            assert close
        difference = against(expected, got)
        assert difference.is_round_off == close
        assert (difference.severity <= 1) == close


@pytest.mark.parametrize(
    ("got", "field"),
    [
        (torch.zeros(2, 3), "shape"),
        (torch.zeros(3, 2).double(), "dtype"),
        (torch.ones(3, 2), "sample[0]"),
        (torch.full((3, 2), math.nan), "sample[0]"),
        (torch.full((3, 2), math.inf), "sample[0]"),
    ],
)
def test_the_field_that_differs_is_named_and_never_passes(got, field):
    difference = against(torch.zeros(3, 2), got)
    assert (difference.batch, difference.what, difference.field) == (3, "x", field)
    assert not difference.is_round_off


@pytest.mark.parametrize(("apart", "is_round_off"), [(1e-4, True), (1e-2, False)])
def test_a_small_value_has_the_round_off_of_the_large_ones_beside_it(apart, is_round_off):
    """Such as 300 - 299.9 in a sum: another kernel adds in another order."""
    expected = torch.tensor([0.1, 300.0])
    assert against(expected, expected + torch.tensor([apart, 0.0])).is_round_off == is_round_off


def test_an_infinity_gives_no_room_to_the_values_beside_it():
    expected = torch.tensor([0.1, math.inf])
    assert not against(expected, expected + 0.01).is_round_off


def test_a_change_that_the_sample_misses_is_seen_by_the_sums():
    expected, got = torch.zeros(1000), torch.zeros(1000)
    got[next(place for place in range(1, 1000) if place not in places_of(1000))] = 0.5
    assert against(expected, got).field == "max_abs"
    expected[0] = got[0] = 9
    difference = against(expected, got)
    assert (difference.field, difference.is_round_off) == ("sum", False)


def places_of(size):
    return [int(value) for value in record_tensor("x", torch.arange(size)).sample]


def test_rows_that_changed_places_are_seen_by_the_sample():
    difference = against(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0]))
    assert difference.field == "sample[0]"
    assert difference.absolute == 1


def test_whole_numbers_with_other_bytes_are_different_even_if_no_moment_shows_it():
    one = torch.arange(1000)
    other = one.clone()
    a, b = [place for place in range(1000) if place not in places_of(1000)][:2]
    other[a], other[b] = one[b], one[a]
    difference = against(one, other)
    assert (difference.field, difference.is_round_off) == ("sha256", False)


def test_a_device_is_part_of_the_record():
    record = record_tensor("x", torch.zeros(2))
    moved = record.model_copy(update={"device": "cuda:1"})
    assert compare(1, record, moved).field == "device"

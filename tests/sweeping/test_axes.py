"""The axes of a sweep: spans, steps, powers and lists of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.errors import UsageError
from dpdemo.sweeping.axes import parse_axis


def read(text):
    return list(parse_axis(text, 10**6))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("16", [16]),
        ("3-6", [3, 4, 5, 6]),
        ("16-40:8", [16, 24, 32, 40]),
        ("16-39:8", [16, 24, 32]),
        ("1-16:x2", [1, 2, 4, 8, 16]),
        ("3-100:x3", [3, 9, 27, 81]),
        ("8, 2,4", [2, 4, 8]),
        ("1-4,8,16-32:16", [1, 2, 3, 4, 8, 16, 32]),
        ("4-6,5-7,5", [4, 5, 6, 7]),
        ("7-7", [7]),
    ],
)
def test_an_axis_stands_for_these_numbers(text, numbers):
    assert read(text) == numbers


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30))
def test_a_list_goes_up_and_has_each_number_once(numbers):
    assert read(",".join(map(str, numbers))) == sorted(set(numbers))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected numbers such as 16, 16-512, 16-512:8, 1-64:x2 or a list of these, got ''"),
        ("1,,2", "expected numbers such as"),
        ("1-", "expected numbers such as"),
        ("1-4:", "expected numbers such as"),
        ("5-1", "expected a span that goes up, got '5-1'"),
        ("0-4", "expected numbers from 1 to 1000000, got '0'"),
        ("1-4:0", "expected numbers from 1 to 1000000, got '0'"),
        ("1-4:x1", "expected a factor of 2 or more, got '1-4:x1'"),
        ("1-1000001", "expected numbers from 1 to 1000000, got '1000001'"),
        ("1-100000,1-2", "expected at most 100000 numbers"),
        ("³", "expected numbers such as"),
        ("9" * 5000, "expected numbers from 1 to 1000000"),
    ],
)
def test_anything_else_is_refused(text, message):
    with pytest.raises(UsageError) as caught:
        read(text)
    assert message in str(caught.value)

"""Numbers as a user writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.config.numbers import read_number, whole_number
from dpdemo.errors import UsageError


@given(st.integers(0, 2**63 - 1))
def test_a_number_in_plain_digits_is_read(number):
    assert whole_number(f" 00{number}", 0, 2**63 - 1) == number


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "1e3", "٣", "³", "0x1", "1_000", "9" * 5000, "11"])
def test_other_texts_and_numbers_out_of_bounds_are_refused(text):
    assert whole_number(text, 0, 10) is None


@given(st.text())
def test_any_text_is_a_number_or_a_short_error(text):
    try:
        number = read_number(text, 1, 99)
    except UsageError as error:
        assert len(error.message) < 200  # noqa: PT017 - the test is of both ends
    else:
        assert 1 <= number <= 99

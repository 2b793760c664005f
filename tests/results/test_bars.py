"""Bars: a device's share as a length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.results.bars import bar, bar_heading
from dpdemo.results.table import plain
from dpdemo.wording import fit

largest = st.integers(1, 2**63 - 1)


@given(st.data(), largest, st.integers(2, 80), st.booleans())
def test_a_bar_fills_its_width_and_only_the_largest_is_all_block(data, largest, width, ascii_only):
    rows = data.draw(st.integers(0, largest))
    text = fit(plain(bar(rows, largest, width)), "ascii" if ascii_only else "utf-8")
    shade = "." if ascii_only else "░"

    assert len(text) == width
    assert (text.strip("#█") == "") == (rows == largest)
    assert (text == shade * width) == (rows == 0)


@given(st.data(), largest, st.integers(2, 80))
def test_more_rows_never_make_a_shorter_bar(data, largest, width):
    fewer = data.draw(st.integers(0, largest))
    more = data.draw(st.integers(fewer, largest))

    def shade(rows):
        return plain(bar(rows, largest, width)).count("░")

    assert shade(more) <= shade(fewer)


@pytest.mark.parametrize(("rows", "drawn"), [(8, "████"), (4, "██░░"), (3, "█▌░░"), (1, "▌░░░"), (0, "░░░░")])
def test_a_bar_is_exact_to_an_eighth_of_a_cell(rows, drawn):
    assert plain(bar(rows, 8, 4)) == drawn


def test_a_lone_row_out_of_a_million_can_be_seen():
    assert plain(bar(1, 10**6, 10)).startswith("▏")
    assert fit(plain(bar(1, 10**6, 10)), "ascii") == "+........."


@pytest.mark.parametrize(
    ("rows", "block", "shade"), [(8, "green", "dim"), (3, "yellow", "dim"), (0, "red", "red")]
)
def test_full_short_and_idle_devices_each_have_their_colour(rows, block, shade):
    (_, of_block), (_, of_shade) = bar(rows, 8, 4)
    assert (of_block, of_shade) == (block, shade)


def test_the_heading_of_the_bars_is_as_long_as_they_are_wide():
    assert [bar_heading(width) for width in (40, 20, 6, 4)] == [
        "share of the largest chunk", "of the largest", "share", ""
    ]  # fmt: skip

"""Bars: a device's share as a length."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.render.bars import bar

largest = st.integers(1, 2**63 - 1)


@given(st.data(), largest, st.integers(2, 80), st.booleans())
def test_a_bar_fills_its_width_and_only_the_largest_is_all_block(data, largest, width, ascii_only):
    rows = data.draw(st.integers(0, largest))
    text = bar(rows, largest, 0, width, ascii_only=ascii_only).plain
    shade = "." if ascii_only else "░"

    assert len(text) == width
    assert (text.strip("#█") == "") == (rows == largest)
    assert (text == shade * width) == (rows == 0)


@given(st.data(), largest, st.integers(2, 80))
def test_more_rows_never_make_a_shorter_bar(data, largest, width):
    fewer = data.draw(st.integers(0, largest))
    more = data.draw(st.integers(fewer, largest))

    def shade(rows):
        return bar(rows, largest, 0, width, ascii_only=False).plain.count("░")

    assert shade(more) <= shade(fewer)


@pytest.mark.parametrize(("rows", "drawn"), [(8, "████"), (4, "██░░"), (3, "█▌░░"), (1, "▌░░░"), (0, "░░░░")])
def test_a_bar_is_exact_to_an_eighth_of_a_cell(rows, drawn):
    assert bar(rows, 8, 0, 4, ascii_only=False).plain == drawn


def test_a_lone_row_out_of_a_million_can_be_seen():
    assert bar(1, 10**6, 0, 10, ascii_only=False).plain.startswith("▏")
    assert bar(1, 10**6, 0, 10, ascii_only=True).plain == "#........."


def test_neighbours_differ_in_colour():
    colours = [bar(1, 1, position, 4, ascii_only=False).spans[0].style for position in range(10)]

    assert all(one != other for one, other in itertools.pairwise(colours))

"""Sizes of memory are read as people write them; what is none is refused, with what to write instead."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.bytesize import capacities, parse_size


@pytest.mark.parametrize(
    ("size", "num_bytes"),
    [
        ("24GiB", 24 * 2**30),
        ("512MiB", 512 * 2**20),
        ("1KiB", 1024),
        ("2TiB", 2 * 2**40),
        ("1.5GiB", 3 * 2**29),
        ("0.5KiB", 512),
        (1024, 1024),
        (1, 1),
    ],
)
def test_sizes_have_a_unit_of_1024_and_numbers_are_bytes(size: Any, num_bytes: int) -> None:
    assert parse_size(size) == num_bytes


@given(st.integers(1, 2**20), st.sampled_from(["KiB", "MiB", "GiB", "TiB"]))
def test_whole_sizes_are_exact(number: int, unit: str) -> None:
    factor = 1024 ** (["KiB", "MiB", "GiB", "TiB"].index(unit) + 1)
    assert parse_size(f"{number}{unit}") == number * factor


@given(st.text(max_size=12))
def test_any_other_text_is_refused_by_name_and_never_misread(text: str) -> None:
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?[KMGT]iB", text) and float(text[:-3]) > 0:
        return
    with pytest.raises(ValueError, match=r"^expected a size such as 24GiB or 512MiB, got "):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "advice"),
    [
        ("24", "; with its unit it is 24GiB"),
        ("24GB", "; memory is sold in units of 1024: 24GiB"),
        ("24gib", "; memory is sold in units of 1024: 24GiB"),
        ("24 GB", "; memory is sold in units of 1024: 24GiB"),
        ("24G", "; memory is sold in units of 1024: 24GiB"),
        ("512m", "; memory is sold in units of 1024: 512MiB"),
        ("24 GiB", "; write it without the space"),
        ("-1GiB", ""),
        ("0GiB", ""),
        ("0.0001KiB", ""),
        ("lots", ""),
        ("", ""),
        ("1e3GiB", ""),
        ("24GiB\n", "; write it without the space"),
        ("٢٤GiB", ""),
        (0, ""),
        (-5, ""),
        (True, ""),
        (1.5, "; with its unit it is 1.5GiB"),
        (None, ""),
    ],
)
def test_a_refusal_says_what_to_write(size: Any, advice: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        parse_size(size)
    assert str(caught.value) == f"expected a size such as 24GiB or 512MiB, got {size!r}{advice}"


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (None, [None, None, None]),
        ("1GiB", [2**30] * 3),
        (4096, [4096] * 3),
        (["1GiB", "2GiB", 4096], [2**30, 2**31, 4096]),
        (("1KiB", 2, 3), [1024, 2, 3]),
    ],
)
def test_one_size_is_for_all_gpus_and_a_list_for_each(memory: Any, expected: Any) -> None:
    assert capacities(memory, 3) == expected


@pytest.mark.parametrize(("memory", "number"), [(["1GiB"] * 2, 2), (["1GiB"] * 4, 4), ([], 0)])
def test_more_or_fewer_sizes_than_gpus_are_refused(memory: list[str], number: int) -> None:
    wording = f"^expected one size, or one for each of the 3 GPUs, got {number} sizes$"
    with pytest.raises(ValueError, match=wording):
        capacities(memory, 3)


def test_a_bad_size_in_a_list_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got 'lots'$"):
        capacities(["1GiB", "lots", "1GiB"], 3)


@pytest.mark.parametrize("memory", [1.5, True, {"0": "1GiB"}, object()])
def test_what_is_no_size_at_all_is_refused(memory: Any) -> None:
    with pytest.raises(ValueError, match=r"^expected"):
        capacities(memory, 1)

"""Sizes of memory are read as people write them; what is none is refused, with what to write instead."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.sizes import capacities, parse_size
from dpdemo.sizes import size as written


@pytest.mark.parametrize(
    ("size", "num_bytes"),
    [
        ("24GiB", 24 * 2**30),
        ("512MiB", 512 * 2**20),
        ("1KiB", 1024),
        ("2TiB", 2 * 2**40),
        ("1.5GiB", 3 * 2**29),
        ("0.5KiB", 512),
        ("24GB", 24 * 10**9),
        ("98 mb", 98 * 10**6),
        ("600 B", 600),
        ("24G", 24 * 2**30),
        ("24gib", 24 * 2**30),
        ("24", 24 * 2**30),
        ("512m", 512 * 2**20),
        (1024, 1024),
        (1, 1),
    ],
)
def test_gb_is_si_and_gib_is_binary_and_numbers_are_bytes(size: Any, num_bytes: int) -> None:
    assert parse_size(size) == num_bytes


@given(st.integers(1, 2**20), st.sampled_from(["KiB", "MiB", "GiB", "TiB"]))
def test_whole_sizes_are_exact(number: int, unit: str) -> None:
    factor = 1024 ** (["KiB", "MiB", "GiB", "TiB"].index(unit) + 1)
    assert parse_size(f"{number}{unit}") == number * factor


@given(st.text(max_size=12))
def test_any_other_text_is_refused_by_name_and_never_misread(text: str) -> None:
    if re.fullmatch(r"[0-9]+(\.[0-9]+)? ?([KMGTkmgt]([iI]?[bB])?|[bB])?", text, re.ASCII):
        return
    with pytest.raises(ValueError, match=r"^expected a size such as 24GiB or 512MiB, got "):
        parse_size(text)


@pytest.mark.parametrize(
    "size",
    [
        *("-1GiB", "0GiB", "0.0001KiB", "lots", "", "1e3GiB", "24GiB\n", "٢٤GiB", "24  GB", "9" * 5000),
        *(0, -5, True, 1.5, None),
    ],
)
def test_other_texts_are_refused(size: Any) -> None:
    with pytest.raises(ValueError, match=r"^expected a size such as 24GiB or 512MiB, got "):
        parse_size(size)


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
def test_other_types_are_refused(memory: Any) -> None:
    with pytest.raises(ValueError, match=r"^expected"):
        capacities(memory, 1)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (3000, "2.93 KiB"), (102400, "100 KiB"),
     (1024**2 - 1, "1 MiB"), (24 * 1024**3, "24 GiB"), (1536, "1.5 KiB"), (1000 * 1024, "0.98 MiB")],
)  # fmt: skip
def test_a_size_is_written_with_three_digits(num_bytes: int, text: str) -> None:
    assert written(num_bytes) == text

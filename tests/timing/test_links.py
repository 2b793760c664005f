"""The links: their rates, which the docs list with sources, and any other bandwidth."""

import re
from pathlib import Path

import pytest

from dpdemo.errors import UsageError
from dpdemo.timing.links import DEFAULT_LINK, LINKS, find_link, link_of_bandwidth

DOCS = Path(__file__).parents[2] / "docs" / "speed-up.md"


def test_the_docs_have_each_link_with_its_rates_and_a_source():
    row = re.compile(r"^\| `([\w-]+)` \| ([\d.–]+) \| ([\d.–]+) \| .{40,} \|$", re.MULTILINE)
    assert row.findall(DOCS.read_text()) == [
        (name, *(f"{rate.low:g}–{rate.high:g}" for rate in (link.copy_rate, link.ring_rate)))
        for name, link in LINKS.items()
    ]


def test_the_least_rate_is_below_the_most():
    for link in LINKS.values():
        assert link.copy_rate.low < link.copy_rate.high
        assert link.ring_rate.low < link.ring_rate.high


def test_a_misspelt_link_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match=r"expected one of pcie3, .*, got 'nvlink-390'") as refused:
        find_link("nvlink-390")
    assert refused.value.hint == "did you mean `nvlink-3090`?"


def test_the_default_link_has_a_name():
    assert find_link(DEFAULT_LINK.upper()).name == DEFAULT_LINK


@pytest.mark.parametrize(
    ("text", "rate"), [("20GB/s", 20), ("12.5 GB/s", 12.5), ("800MB/s", 0.8), ("1TBps", 1000)]
)
def test_a_bandwidth_is_a_link_of_just_that(text, rate):
    link = link_of_bandwidth(text)
    found = [link.copy_rate.low, link.copy_rate.high, link.ring_rate.low, link.ring_rate.high]
    assert found == pytest.approx([rate] * 4)


@pytest.mark.parametrize("text", ["20", "20GB", "0GB/s", "20Gb", "fast", "20GiB/s"])
def test_any_other_bandwidth_is_refused(text):
    with pytest.raises(UsageError, match="expected bytes per second such as 20GB/s"):
        link_of_bandwidth(text)

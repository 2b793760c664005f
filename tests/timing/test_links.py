"""The links: each with its range and the source of it."""

import pytest

from dpdemo.errors import UsageError
from dpdemo.timing.links import LINKS, find_link, link_of_bandwidth


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)
def test_every_link_has_a_range_and_a_source(link):
    assert link.copy_rate.low <= link.copy_rate.high
    assert link.ring_rate.low <= link.ring_rate.high
    assert len(link.source) > 40


def test_the_links_are_those_that_the_help_names():
    assert list(LINKS) == [
        *("pcie3", "pcie4", "pcie5", "nvlink2", "nvlink3", "nvlink4", "nvlink-3090", "no-p2p"),
    ]


def test_a_misspelt_link_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match=r"expected one of pcie3, .*, got 'nvlink-390'") as refused:
        find_link("nvlink-390")
    assert refused.value.hint == "did you mean `nvlink-3090`?"


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

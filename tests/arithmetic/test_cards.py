"""Cards by name, and what the table says of each."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpdemo.arithmetic.cards import CARDS, VIRTUAL, find_card


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A100-80GB", "A100-80GB"),
        ("a100 40gb", "A100-40GB"),
        ("RTX 4090", "RTX4090-24GB"),
        ("4090", "RTX4090-24GB"),
        ("A6000", "RTXA6000-48GB"),
        ("Tesla T4", "T4-16GB"),
        ("NVIDIA H100 80GB HBM3", "H100-80GB"),
    ],
)
def test_a_card_is_found_however_people_write_it(text, name):
    assert find_card(text).name == name


@given(st.sampled_from(CARDS), st.booleans(), st.sampled_from([" ", "-", "_", ""]))
def test_every_card_is_found_by_its_own_name_in_any_case_and_with_any_dash(card, is_lower, dash):
    written = card.name.replace("-", dash)
    assert find_card(written.lower() if is_lower else written) is card


def test_a_name_of_several_cards_asks_for_the_memory():
    with pytest.raises(ValueError, match="expected V100-32GB or V100-16GB, got 'V100': say how much memory"):
        find_card("V100")


@pytest.mark.parametrize(
    ("text", "meant"), [("A100-81", "did you mean A100-80GB"), ("?!", "known are B200-180GB, ")]
)
def test_unknown_card_suggests_the_nearest(text, meant):
    with pytest.raises(
        ValueError, match=re.escape(f"expected a card such as A100-80GB, got {text!r}: {meant}")
    ):
        find_card(text)


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_pytorch_finds_a_little_less_memory_than_the_card_is_sold_with(card):
    assert 0.89 < card.memory_gib / card.sold_gb < 1
    assert not card.source or re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", card.source)


def test_card_names_are_unique_and_the_default_matches_an_h100():
    assert len({card.name for card in CARDS}) == len(CARDS)
    assert VIRTUAL.num_blocks == find_card("H100-80GB").num_blocks

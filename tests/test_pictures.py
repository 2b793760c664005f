"""The picture of the README shows what the program draws today."""

import re

import pytest
from movie import PICTURE, drawn, scenes
from readme import ROOT


def test_every_picture_of_a_page_is_made_by_the_program():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    links = {
        (page, link) for page in pages for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text())
    }
    shown = {str((page.parent / link).resolve().relative_to(ROOT)) for page, link in links}
    assert shown == {str(PICTURE.relative_to(ROOT))}


@pytest.mark.slow
def test_moving_picture_shows_current_output():
    assert drawn(scenes()) == PICTURE.read_text(), "renew it with `make docs`"


def test_the_moving_picture_is_small_and_needs_nothing_else():
    text = PICTURE.read_text()
    assert len(text.encode()) < 300_000
    assert "<script" not in text
    assert not re.search(r"(href|src|url)\s*[=(]\s*[\"']?http", text)
    assert "prefers-reduced-motion" in text

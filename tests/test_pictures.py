"""The pictures of README and docs are what the program draws today."""

import re

import pytest
from movie import PICTURE, drawn, scenes
from pictures import PICTURES, ROOT, make


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_up_to_date(tmp_path, name):
    """If not: `make docs`, and look at what changed."""
    make(PICTURES[name], tmp_path / "now.svg")
    assert (tmp_path / "now.svg").read_text() == (ROOT / name).read_text()


def test_every_picture_of_a_page_is_made_by_the_program():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    links = {
        (page, link) for page in pages for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text())
    }
    shown = {str((page.parent / link).resolve().relative_to(ROOT)) for page, link in links}
    assert shown <= {*PICTURES, "docs/pictures/session.svg"}
    assert shown


@pytest.mark.slow
def test_moving_picture_shows_current_output():
    assert drawn(scenes()) == PICTURE.read_text(), "renew it with `make docs`"


def test_the_moving_picture_is_small_and_needs_nothing_else():
    text = PICTURE.read_text()
    assert len(text.encode()) < 300_000
    assert "<script" not in text
    assert not re.search(r"(href|src|url)\s*[=(]\s*[\"']?http", text)
    assert "prefers-reduced-motion" in text

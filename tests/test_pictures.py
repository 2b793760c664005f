"""The pictures of README and docs are what the program draws today."""

import re

import pytest
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
    assert shown == set(PICTURES)

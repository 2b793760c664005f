"""The offline page as a file: one, small, closed to every network, and of the user's own case."""

import json
import re

import pytest

from dpdemo import Config, UsageError
from dpdemo.cli.page import start_of
from dpdemo.page import as_page


def test_the_page_is_one_small_file_of_the_users_case():
    text = as_page(start_of(Config(batch_size=64, data_size=1000, gpus=4)), "1.2")
    assert len(text.encode()) < 300_000
    assert "Made by dpdemo 1.2." in text
    assert re.findall(r"https?://|//cdn|@import|url\(", text) == []
    assert "default-src 'none'" in text
    data = json.loads(re.search(r'id="page-data">(.*?)</script>', text, re.DOTALL)[1])
    assert data == {"batch": 64, "data": 1000, "gpus": 4, "dropLast": False}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"gpus": 129}, "at most 128"),
        ({"batch_size": 10**6}, "at most 100000"),
        ({"data_size": 10**10}, "at most 1000000000"),
    ],
)
def test_case_too_large_to_draw_is_refused(values, said):
    with pytest.raises(UsageError, match=said):
        start_of(Config(**values))


def test_the_command_saves_the_page_and_writes_it_to_a_pipe(dpdemo_main, tmp_path):
    path = tmp_path / "page.html"
    done = dpdemo_main("page", "--gpus", "8", "--save", path)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"saved to {path}" in done.stderr
    piped = dpdemo_main("page", "--gpus", "8")
    assert piped.stdout == path.read_text()
    refused = dpdemo_main("page", "--save", tmp_path / "page.pdf")
    assert (refused.returncode, "expected a file ending in .html" in refused.stderr) == (2, True)

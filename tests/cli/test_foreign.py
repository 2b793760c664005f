"""Names and messages of a user's code never control a terminal, a log or a page."""

import json

import pytest

EVIL = "Evil\\n::error::pwned\\x1b[2J<script>|=1+1```"
MODEL = f"""
from torch import nn
def forward(self, x):
    self.seen = self.seen + 1
    return self.layer(x)
def init(self):
    nn.Module.__init__(self)
    self.layer, self.seen = nn.Linear(4, 2), 0
Net = type("{EVIL}", (nn.Module,), {{"__init__": init, "forward": forward}})
class Broken(Net):
    def forward(self, x):
        if x.device.index:  # in every replica but the first
            raise ValueError("{EVIL}")
        return self.layer(x)
"""


@pytest.fixture(autouse=True)
def folder(users_folder):
    return users_folder({"evil.py": MODEL})


def lines_of(done):
    return (done.out + done.err).splitlines()


@pytest.mark.parametrize("form", ["text", "github"])
@pytest.mark.parametrize("name", ["Net", "Broken"])
def test_a_check_lets_no_name_and_no_message_through(dpdemo, form, name):
    done = dpdemo("check", f"evil.py:{name}", "--input", "8x4", "--format", form)
    assert "Evil" in done.out
    assert "\x1b" not in done.out + done.err
    assert not any(line.lstrip().startswith("::error::pwned") for line in lines_of(done))


def test_json_and_sarif_hold_the_name_as_it_is(dpdemo, folder):
    done = dpdemo("check", "evil.py:Net", "--input", "8x4", "-f", "json", "--save", "r.sarif")
    assert json.loads(done.out)["model"].startswith("Evil\n::error::pwned\x1b[2J<script>")
    assert json.loads((folder / "r.sarif").read_text())["version"] == "2.1.0"


def test_an_error_lets_no_message_through(dpdemo):
    done = dpdemo("run", "--virtual", "--gpus", "0,1", "--model", "evil.py:Broken", "--set", "input_size=4")
    assert done.code == 1
    assert "got ValueError in replica 1 on device 1: Evil" in done.err
    assert "\x1b" not in done.err
    assert not any(line.lstrip().startswith("::error::") for line in lines_of(done))


def test_a_file_name_steers_nothing(dpdemo):
    done = dpdemo("simulate", "--save", "a\n::error::b\x1b.md")
    assert r"saved to a" in done.err
    assert "\x1b" not in done.err
    assert "\n::error::" not in done.err


def test_a_spreadsheet_takes_no_name_for_a_formula():
    from dpdemo.results.formats import csv_pieces

    text = "".join(csv_pieces(("a", "b"), [("=1+1", -2), ("@x", True), ("+\n", None)]))
    assert text == "a,b\n'=1+1,-2\n'@x,true\n'+\\n,\n"

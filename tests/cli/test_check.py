"""`dpdemo check` as its user calls it."""

import json
import sys

import pytest
from processes import interrupted, on_a_terminal, run

from dpdemo.checking.registry import rules

MODELS = """
import torch
from torch import nn


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.steps = 0

    def forward(self, x, mask=None):
        self.steps += 1
        print("a print of the users")
        return self.fc(x) if mask is None else self.fc(x) * mask


class Clean(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x)


def with_inputs():
    return Clean(), torch.ones(8, 4)


def inputs(batch_size):
    return torch.ones(batch_size, 4)
"""


@pytest.fixture
def models(users_folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    return users_folder({"zoo_of_models.py": MODELS})


def test_a_target_that_is_no_model_is_named(models, dpdemo):
    (models / "other.py").write_text("x = 3\ndef make(): return x")
    for name in ("x", "make"):
        done = dpdemo("check", f"other.py:{name}")
        assert done.code == 2
        assert f"`other.py:{name}`, got int - at argument TARGET" in done.err


@pytest.mark.usefixtures("models")
def test_a_finding_is_printed_with_its_place_cause_and_fix(dpdemo):
    done = dpdemo("check", "zoo_of_models:Counting", "--input", "8x4", "--input", "mask=8x3:bool")
    assert done.code == 1
    assert "error DP301 lost-state  zoo_of_models.py:13" in done.out
    assert "`steps` goes from 0 to 1 on one GPU, and stays 0" in done.out
    assert "13 | self.steps += 1\n" in done.out
    assert done.out.endswith("Counting on 4 virtual GPUs, batch sizes 8, 5: 1 error\n")
    assert "\na print of the users" not in done.out  # a user's prints are kept out of the report


@pytest.mark.usefixtures("models")
def test_inputs_come_from_a_function_of_the_batch_size(dpdemo):
    options = ["--inputs", "zoo_of_models:inputs", "--batch-size", "16", "--data-size", "40"]
    done = dpdemo("check", "zoo_of_models:Clean", *options)
    assert done.out == "Clean on 4 virtual GPUs, batch sizes 16, 8: no pitfalls\n"


def test_each_format_has_the_finding_its_place_and_its_fix_and_no_colours(dpdemo, models, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    saved = [word for ending in ("json", "sarif", "txt") for word in ("--save", f"r.{ending}")]
    done = dpdemo("check", "zoo_of_models:Counting", "--input", "8x4", "-q", "-f", "github", *saved)
    assert done.err == ""
    first, last = done.out.splitlines()
    assert first.startswith("::error file=zoo_of_models.py,line=13,title=DP301 lost-state::`steps` goes")
    assert "%0AInstead of: self.steps += 1%0Awrite:%0Ay = model(x)%0A" in first
    assert last.endswith("1 error")

    document = json.loads((models / "r.json").read_text())
    assert (document["schema"], document["ok"]) == ("dpdemo.check/1", False)
    (finding,) = document["findings"]
    assert (finding["code"], finding["file"], finding["line"]) == ("DP301", "zoo_of_models.py", 13)
    assert finding["before"] == "self.steps += 1"
    assert finding["after"].splitlines()[:2] == [
        "y = model(x)",
        "model.module.steps += 1   # after the call, not in forward",
    ]
    assert finding["is_example"] is False

    (run,) = json.loads((models / "r.sarif").read_text())["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["DP301"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "zoo_of_models.py"}, "region": {"startLine": 13}}

    text = (models / "r.txt").read_text()
    assert text.startswith("error")
    assert "\x1b" not in done.out + text


def test_rules_are_ignored_by_option_and_by_pyproject(dpdemo, models):
    call = ("check", "zoo_of_models:Counting", "--input", "8x4")
    assert dpdemo(*call, "--ignore", "DP301").code == 0
    assert dpdemo(*call, "--select", "DP2,DP4").code == 0
    (models / "pyproject.toml").write_text('[tool.dpdemo]\nignore = ["DP3"]\ngpus = 2\n')
    done = dpdemo(*call)
    assert (done.code, "on 2 virtual GPUs" in done.out) == (0, True)
    assert dpdemo(*call, "--ignore", "DP4").code == 1  # an option wins over the file


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('ignor = ["DP3"]', "did you mean `ignore`?"),
        ('ignore = "DP3"', "expected a list of rule codes, got 'DP3'"),
        ('ignore = ["DP9"]', "`tool.dpdemo`"),
        ("gpus = true", "expected a number"),
    ],
)
def test_wrong_pyproject_names_the_key(dpdemo, models, text, says):
    (models / "pyproject.toml").write_text(f"[tool.dpdemo]\n{text}\n")
    done = dpdemo("check", "zoo_of_models:with_inputs")
    assert done.code == 2
    assert says in done.err
    assert "pyproject.toml" in done.err


@pytest.mark.parametrize("known", rules(), ids=lambda known: known.code)
def test_every_page_can_be_printed(dpdemo, monkeypatch, known):
    monkeypatch.setenv("COLUMNS", "50")
    said = dpdemo("check", "--explain", known.code).out
    assert said.startswith(f"{known.code} {known.name}")
    assert max(map(len, said.splitlines())) <= 50


def test_the_list_names_every_rule(dpdemo):
    said = dpdemo("check", "--list").out
    assert all(f"  {known.code} {known.severity}" in said for known in rules())


def test_ctrl_c_ends_a_check_without_a_traceback(tmp_path):
    (tmp_path / "zoo.py").write_text(
        "import sys, time\nfrom torch import nn\n\nclass Slow(nn.Module):\n    def forward(self, x):\n"
        "        print('in forward', file=sys.stderr, flush=True)\n        time.sleep(60)\n"
    )
    ended = interrupted("in forward", "-m", "dpdemo", "check", "zoo:Slow", "--input", "8x4", cwd=tmp_path)
    assert ended == (130, "", "")


@pytest.mark.usefixtures("models")
def test_missing_inputs_are_inferred_and_reported(dpdemo):
    done = dpdemo("check", "zoo_of_models:Clean", "--gpus", "2")
    assert done.code == 0
    assert "note: run with --input 32x4, inferred from the first layer\n" in done.out
    assert "no pitfalls" in done.out


ASKS_AS_IT_IS_READ = """
import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.table = torch.ones(4).to(device)

    def forward(self, x):
        return self.fc(x + self.table)
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", [["check", "asks.py:Net", "--input", "8x4"], ["doctor", "asks.py:Net"]])
def test_module_sees_gpus_at_import(tmp_path, words):
    (tmp_path / "asks.py").write_text(ASKS_AS_IT_IS_READ)
    done = run([sys.executable, "-m", "dpdemo", *words], cwd=tmp_path)
    assert "DP302" in done.stdout, done.stdout + done.stderr


def test_on_a_terminal_a_hint_has_a_line_of_its_own():
    _, shown = on_a_terminal("check", "dpdemo.examples.counter", "--batch-size", "4")
    hint = shown.index("inferred from the first layer")
    assert "checking: " in shown[:hint]
    assert (
        "checking: " not in shown[:hint].rpartition("\x1b[?25h")[2]
    )  # the line ends where the cursor returns

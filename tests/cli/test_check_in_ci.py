"""`dpdemo check` in a pipeline: a hook, an action, and a gate."""

import json
import os
import shlex
import sys
from pathlib import Path

import pytest
from processes import run
from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent.parent
MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.steps = 0  {comment}

    def forward(self, x):
        self.steps += 1
        {more}
        return self.fc(x)
"""


@pytest.fixture
def folder(users_folder):
    return users_folder({"net.py": MODEL.format(comment="", more="pass")})


CHECK = ("check", "net.py:Net", "--input", "8x4")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("fail_on", "code"), [("error", 1), ("never", 0)])
def test_fail_on_sets_the_exit_code(dpdemo, fail_on, code):
    assert dpdemo(*CHECK, "--fail-on", fail_on).code == code


@pytest.mark.parametrize(
    ("comment", "is_silent"),
    [
        ("# dpdemo: ignore[DP301,]", True),
        ("# dpdemo: ignore[lost-state]", True),
        ("# dpdemo: ignore", True),
        ("# dpdemo: ignore[DP302,]", False),
        ("# dpdemo: ignore[]", False),
        ("# dpdemo: ignore[shared-container]", False),
    ],
)
def test_comment_silences_only_its_rules(dpdemo, folder, comment, is_silent):
    (folder / "net.py").write_text(MODEL.format(comment=comment, more="pass"))
    assert (dpdemo(*CHECK).code == 0) == is_silent


@pytest.mark.usefixtures("folder")
def test_batch_size_option_wins_over_shapes(dpdemo):
    assert "batch sizes 64, 5" in dpdemo(*CHECK, "--batch-size", "64").out


def test_a_traceback_is_explained_and_the_report_saved(program, tmp_path):
    text = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
RuntimeError: chunk expects at least a 1-dimensional tensor
"""
    done = program("check", "--traceback", "-", "--save", tmp_path / "r.json", typed=text)
    assert (done.code, "DP206 scalar-argument" in done.out) == (0, True)
    assert json.loads((tmp_path / "r.json").read_text())["findings"][0]["code"] == "DP206"


@pytest.mark.usefixtures("folder")
def test_the_pre_commit_hook_runs_as_it_is_written(dpdemo):
    (hook,) = YAML(typ="safe").load(ROOT / ".pre-commit-hooks.yaml")
    command = shlex.split(hook["entry"])
    assert command[0] == "dpdemo"
    done = dpdemo(*command[1:], "net.py:Net", "--input", "8x4", "--ignore", "DP301")
    assert done.code == 0, done.err


def run_step(script, folder, programs, **environment):
    """Run a step of the action in a folder, with these programs on the path."""
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, **environment}
    return run(["/bin/bash", "-e", "-c", script], cwd=folder, env=env)


def test_the_actions_step_runs_as_it_is_written_with_paths_from_the_checkouts_root(folder):
    action = YAML(typ="safe").load(ROOT / "action.yml")
    inside, programs = folder / "models", folder / "bin"
    inside.mkdir()
    (folder / "net.py").rename(inside / "net.py")
    programs.mkdir()
    (programs / "dpdemo").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dpdemo "$@"\n')
    (programs / "dpdemo").chmod(0o755)
    done = run_step(
        action["runs"]["steps"][-1]["run"], inside, programs,
        TARGET="net.py:Net", ARGS="--input 8x4", FAIL_ON=action["inputs"]["fail-on"]["default"],
        GITHUB_WORKSPACE=str(folder),
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "::error file=models/net.py,line=12,title=DP301" in done.stdout


@pytest.mark.slow
def test_the_actions_tests_and_the_pages_run_as_they_are_written(tmp_path):
    """The page's tests: plain device code, DataParallel, DDP and FSDP."""
    action = YAML(typ="safe").load(ROOT / "action.yml")
    (step,) = [each for each in action["runs"]["steps"] if each["name"] == "Test"]
    page = (ROOT / "docs" / "ci.md").read_text("utf-8")
    (tmp_path / "test_page.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    done = run_step(
        step["run"].replace("python -m", f"{shlex.quote(sys.executable)} -m"), tmp_path, tmp_path / "bin",
        TESTS="test_page.py -p dpdemo.pytest_plugin -q", GPUS=action["inputs"]["gpus"]["default"],
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTHONSAFEPATH="",
    )  # fmt: skip
    assert "4 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_exec_takes_rules_and_puts_findings_into_its_report(program, folder):
    (folder / "train.py").write_text(
        "import torch\nfrom torch import nn\nfrom net import Net\n"
        "nn.DataParallel(Net().cuda())(torch.ones(8, 4).cuda()).sum().backward()\n"
    )
    options = ("exec", "--gpus", "2", "--quiet", "--check", "--report", "out.json")
    done = program(*options, "train.py")
    assert done.code == 0, done.err
    found = json.loads((folder / "out.json").read_text())["check"]
    assert [finding["code"] for finding in found["findings"]] == ["DP301"]
    program(*options, "--ignore", "lost-state", "train.py")
    assert json.loads((folder / "out.json").read_text())["check"]["findings"] == []
    wrong = program("exec", "--gpus", "2", "--check", "--select", "DP9", "train.py")
    assert (wrong.code, "got 'DP9' - at option `--select`" in wrong.err) == (2, True)


def test_a_program_without_dataparallel_is_not_called_clean(program, folder):
    (folder / "train.py").write_text("import torch\nprint(torch.cuda.device_count())\n")
    done = program("exec", "--gpus", "2", "--check", "train.py")
    assert "nothing was checked" in done.err
    assert "no pitfalls" not in done.err

"""`dpdemo check` in a pipeline: a hook, an action, and a gate."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fastpart import mostly_slow
from processes import PATIENCE_SECONDS
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


def dpdemo(folder, *arguments, **options):
    command = [sys.executable, "-m", "dpdemo", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", **options.pop("env", {})}
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
        env=environment, **options,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "net.py").write_text(MODEL.format(comment="", more="pass"))
    return tmp_path


CHECK = ("check", "net.py:Net", "--input", "8x4")


@pytest.mark.parametrize(("fail_on", "code"), mostly_slow([("error", 1), ("never", 0)], every=2))
def test_fail_on_sets_the_exit_code(folder, fail_on, code):
    assert dpdemo(folder, *CHECK, "--fail-on", fail_on).returncode == code


@pytest.mark.parametrize(
    ("comment", "is_silent"),
    mostly_slow(
        [
            ("# dpdemo: ignore[DP301,]", True),
            ("# dpdemo: ignore[lost-state]", True),
            ("# dpdemo: ignore", True),
            ("# dpdemo: ignore[DP302,]", False),
            ("# dpdemo: ignore[]", False),
            ("# dpdemo: ignore[shared-container]", False),
        ],
        every=6,
    ),
)
def test_comment_silences_only_its_rules(folder, comment, is_silent):
    (folder / "net.py").write_text(MODEL.format(comment=comment, more="pass"))
    assert (dpdemo(folder, *CHECK).returncode == 0) == is_silent


def test_batch_size_option_wins_over_shapes(folder):
    done = dpdemo(folder, *CHECK, "--batch-size", "64")
    assert "batch sizes 64, 5" in done.stdout


def test_a_traceback_is_explained(folder):
    text = """Traceback (most recent call last):
  File "a.py", line 1, in <module>
RuntimeError: chunk expects at least a 1-dimensional tensor
"""
    done = dpdemo(folder, "check", "--traceback", "-", input=text)
    assert done.returncode == 0
    assert "DP206 scalar-argument" in done.stdout


def test_the_pre_commit_hook_runs_as_it_is_written(folder):
    (hook,) = YAML(typ="safe").load(ROOT / ".pre-commit-hooks.yaml")
    command = shlex.split(hook["entry"])
    assert command[0] == "dpdemo"
    done = dpdemo(folder, *command[1:], "net.py:Net", "--input", "8x4", "--ignore", "DP301")
    assert done.returncode == 0, done.stderr


def test_the_actions_step_runs_as_it_is_written_with_paths_from_the_checkouts_root(folder):
    action = YAML(typ="safe").load(ROOT / "action.yml")
    step = action["runs"]["steps"][-1]
    inside = folder / "models"
    inside.mkdir()
    (folder / "net.py").rename(inside / "net.py")
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    script = bin_folder / "dpdemo"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dpdemo "$@"\n')
    script.chmod(0o755)
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        "TARGET": "net.py:Net", "ARGS": "--input 8x4", "FAIL_ON": action["inputs"]["fail-on"]["default"],
        "GITHUB_WORKSPACE": str(folder),
    }  # fmt: skip
    done = subprocess.run(
        ["/bin/bash", "-e", "-c", step["run"]], cwd=inside, env=environment, capture_output=True, text=True,
        check=False, timeout=PATIENCE_SECONDS,
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
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "TESTS": "test_page.py -p dpdemo.pytest_plugin -q", "GPUS": action["inputs"]["gpus"]["default"],
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONSAFEPATH": "",
    }  # fmt: skip
    run = step["run"].replace("python -m", f"{shlex.quote(sys.executable)} -m")
    done = subprocess.run(
        ["/bin/bash", "-e", "-c", run], cwd=tmp_path, env=environment, capture_output=True, text=True,
        check=False, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert "4 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_exec_takes_rules_and_puts_findings_into_its_report(folder):
    (folder / "train.py").write_text(
        "import torch\nfrom torch import nn\nfrom net import Net\n"
        "nn.DataParallel(Net().cuda())(torch.ones(8, 4).cuda()).sum().backward()\n"
    )
    options = ("exec", "--gpus", "2", "--quiet", "--check", "--report", "out.json")
    done = dpdemo(folder, *options, "train.py")
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "out.json").read_text())["check"]
    assert [finding["code"] for finding in found["findings"]] == ["DP301"]
    dpdemo(folder, *options, "--ignore", "lost-state", "train.py")
    assert json.loads((folder / "out.json").read_text())["check"]["findings"] == []
    wrong = dpdemo(folder, "exec", "--gpus", "2", "--check", "--select", "DP9", "train.py")
    assert (wrong.returncode, "got 'DP9' - at option `--select`" in wrong.stderr) == (2, True)


def test_a_program_without_dataparallel_is_not_called_clean(folder):
    (folder / "train.py").write_text("import torch\nprint(torch.cuda.device_count())\n")
    done = dpdemo(folder, "exec", "--gpus", "2", "--check", "train.py")
    assert "nothing was checked" in done.stderr
    assert "no pitfalls" not in done.stderr

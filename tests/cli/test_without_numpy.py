"""NumPy is optional: dpdemo works without it and hides torch's warning about it."""

import os
from pathlib import Path

import pytest
from fastpart import mostly_slow

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def without_numpy(tmp_path):
    """The path of a folder that keeps NumPy from every Python, those that are started further on too."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['numpy'] = None\n")
    return os.pathsep.join([str(tmp_path), str(ROOT)])


@pytest.mark.parametrize(
    "command",
    mostly_slow(
        ["run --virtual --gpus 2 -q", "check linear -q", "run --strategy ddp --set processes=2 -q"], 3
    ),
    ids=["dp", "check", "ddp"],
)
def test_the_report_is_complete_and_without_a_warning(program, without_numpy, command):
    ended = program(*command.split(), PYTHONPATH=without_numpy)
    assert (ended.code, ended.err) == (0, "")
    assert "batch size" in ended.out


@pytest.mark.slow
def test_ranks_print_what_the_readme_shows(program, without_numpy):
    ended = program("exec", "--ranks", "2", "-m", "dpdemo.examples.ddp", PYTHONPATH=without_numpy)
    assert (ended.code, ended.err.splitlines()[:2]) == (0, ["", "Ran on 2 ranks: -m dpdemo.examples.ddp"])

"""Odd places: pipes, devices, folders and names that cannot be, wherever a command takes a path."""

import os

import pytest

READERS = [("simulate", "--config"), ("check", "--traceback")]
WRITERS = [("simulate", "--gpus", "2", "--save"), ("page", "--save"), ("init",)]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "linear.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Linear):\n    def __init__(self):\n"
        "        super().__init__(5, 2)\n"
    )
    return tmp_path


@pytest.mark.parametrize("place", ["folder", "deep.json", "/dev/null", "x" * 400])
@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_unreadable_path_exits_with_2(dpdemo, command, place):
    ended = dpdemo(*command, place)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: expected ")
    assert "\n  File " not in ended.err


@pytest.mark.parametrize("place", ["fifo", "x" * 400, "x" * 400 + ".json", "fifo/x.md"])
@pytest.mark.parametrize("command", WRITERS, ids=" ".join)
def test_unwritable_path_exits_with_2(dpdemo, command, place):
    ended = dpdemo(*command, place)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: expected ")


@pytest.mark.parametrize(
    "line",
    [
        "run --virtual --gpus 2",
        "check own:Net --input 8x5",
        "memory linear --gpus 2",
        "doctor linear",
        "exec x.py",
        "exec -m x",
        "init",
        "page --save p.html",
        "simulate --gpus 2 --save r.md",
    ],
)
def test_deleted_current_folder_is_reported(dpdemo, folder, line):
    (folder / "gone").mkdir()
    os.chdir(folder / "gone")
    (folder / "gone").rmdir()
    ended = dpdemo(*line.split())
    assert ended.code == 2
    assert ended.err == (
        "error: expected a current folder, got No such file or directory: was it deleted?\n"
        "hint: change to another: cd ~\n"
    )


def test_without_a_current_folder_arithmetic_goes_on(dpdemo, folder):
    (folder / "gone").mkdir()
    os.chdir(folder / "gone")
    (folder / "gone").rmdir()
    assert dpdemo("simulate", "--gpus", "2").code == 0

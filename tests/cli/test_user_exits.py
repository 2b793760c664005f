"""A user's code that leaves instead of failing, with sys.exit() or another exception that is no Exception.

No command takes that for success, none ends without a word, and each names the line.
"""

import pytest

SOURCE = """
import asyncio
import sys
import torch
from torch import nn


def leave(*_):
    sys.exit(0)  # the line


class Plain(nn.Linear):
    def __init__(self):
        super().__init__(5, 2)


class Init(Plain):
    def __init__(self):
        super().__init__()
        leave()


class Forward(Plain):
    def forward(self, x):
        leave()


class Replica(Plain):
    def forward(self, x):
        if x.get_device() == 1:
            leave()
        return super().forward(x)


class Cancelled(Plain):
    def forward(self, x):
        raise asyncio.CancelledError("the line")


class Backward(Plain):
    def forward(self, x):
        y = super().forward(x)
        if y.requires_grad:
            y.register_hook(leave)
        return y


def inputs(rows):
    leave()
"""
SIZES = ("--gpus", "2", "--batch-size", "8")
COMMANDS = {
    "run": ("run", "--virtual", *SIZES, "--data-size", "8", "--model"),
    "explain": ("explain", "--virtual", *SIZES, "--model"),
    "memory": ("memory", *SIZES, "--input", "8x5"),
    "speedup": ("speedup", "--gpus", "2", "--link", "pcie4", "--input", "8x5"),
    "check": ("check", *SIZES, "--input", "8x5"),
    "doctor": ("doctor", "--gpus", "2", "--input", "8x5"),
}
FORWARD_ALONE = {"run", "explain"}


@pytest.fixture(autouse=True)
def folder(users_folder):
    return users_folder({"leaving.py": SOURCE, "gone.py": "import sys\nsys.exit(0)  # the line\n"})


def told(outcome):
    return " ".join((outcome.out + outcome.err).split())


@pytest.mark.parametrize("target", ["gone.py:x", "leaving.py:Init", "leaving.py:Forward"])
@pytest.mark.parametrize("command", COMMANDS)
def test_model_that_exits_is_reported_with_its_line(dpdemo, command, target):
    ended = dpdemo(*COMMANDS[command], target)
    assert ended.code in {1, 2}
    assert "SystemExit: 0" in told(ended) or "SystemExit in replica 0" in told(ended)
    assert "# the line" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("target", ["leaving.py:Replica", "leaving.py:Cancelled"])
@pytest.mark.parametrize("command", COMMANDS)
def test_exit_in_a_replica_is_reported(dpdemo, command, target):
    ended = dpdemo(*COMMANDS[command], target)
    assert (ended.code in {1, 2}) or command == "doctor"
    assert "SystemExit" in told(ended) or "CancelledError" in told(ended)
    assert "leaving.py" in told(ended).replace(" ", "")  # a long path is broken where the line ends
    assert "Exception in thread" not in ended.err


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - FORWARD_ALONE - {"doctor"}))
def test_exit_in_backward_is_reported(dpdemo, command):
    ended = dpdemo(*COMMANDS[command], "leaving.py:Backward")
    assert "SystemExit" in told(ended)
    assert "leaving.py" in told(ended).replace(" ", "")  # a long path is broken where the line ends
    assert ended.code == (2 if command == "check" else 1)  # where a model that cannot run is a wrong input


@pytest.mark.parametrize("command", ["memory", "check"])
def test_exit_in_a_function_of_inputs_is_reported(dpdemo, command):
    ended = dpdemo(command, "--gpus", "2", "--inputs", "leaving:inputs", "leaving.py:Plain")
    assert ended.code == 2
    assert "SystemExit: 0" in told(ended)
    assert "# the line" in ended.err


def test_ctrl_c_in_a_users_code_still_ends_the_program(dpdemo, folder):
    (folder / "waits.py").write_text("raise KeyboardInterrupt\n")
    assert dpdemo("run", "--virtual", "--model", "waits.py:x").code == 130

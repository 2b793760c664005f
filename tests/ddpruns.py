"""Starting dpdemo and torchrun as whole programs, over loopback alone, for the tests of DDP."""

import os
import subprocess
import sys
from pathlib import Path

import processes

ROOT = Path(__file__).parent.parent
PYTHON = [sys.executable, "-W", "error::UserWarning"]

TROUBLE = """
import json, os, signal, sys, time
import torch
from torch import nn

def on_rank_1():
    return os.environ.get("RANK") == "1"

class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 2)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 3 and on_rank_1():
            self.trouble()
        return self.fc(x)

class Raises(Base):
    def trouble(self):
        raise ValueError("a bad row")

class AllRaise(Base):
    def forward(self, x):
        raise ValueError("a bad row")

class Killed(Base):
    def trouble(self):
        os.kill(os.getpid(), signal.SIGKILL)

class Crashes(Base):
    def trouble(self):
        os.kill(os.getpid(), signal.SIGSEGV)

class Exits(Base):
    def trouble(self):
        sys.exit(0)

class Stuck(Base):
    def trouble(self):
        time.sleep(600)

class Prints(Base):
    def trouble(self):
        for number in range(20):
            print("a word of the model", number)

class Pause:
    def __str__(self):
        time.sleep(0.3)  # longer than the launcher takes to look for more
        return "after a pause"

class PrintsInPieces(Base):
    def forward(self, x):
        print("rank", os.environ["RANK"], Pause())
        print("rank", os.environ["RANK"], Pause(), file=sys.stderr)
        return self.fc(x)

class Endless(Base):
    def forward(self, x):
        if self.calls == 3:
            open("started-" + os.environ["RANK"], "w").close()
        self.calls += 1
        time.sleep(0.01)
        return self.fc(x)

class Averaged(Base):
    # passes on only if the gradients of the step before are the same on every rank
    def forward(self, x):
        own = self.fc.weight.grad
        if own is not None:
            found = [torch.empty_like(own) for _ in range(torch.distributed.get_world_size())]
            torch.distributed.all_gather(found, own)
            assert all(torch.equal(one, own) for one in found), found
            open("averaged-" + os.environ["RANK"], "w").close()
        return self.fc(x)

def with_rows():
    return Net(), torch.ones(6, 4)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(x)

class Nothing(nn.Module):
    def forward(self, x):
        return x
"""


def environment(folder, **more):
    """The environment of a program under test: this source, loopback, and temporary files in `folder`."""
    kept = {key: value for key, value in os.environ.items() if key not in {"RANK", "WORLD_SIZE", "COLUMNS"}}
    return (
        kept
        | {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder), "GLOO_SOCKET_IFNAME": "lo", "NO_COLOR": "1"}
        | more
    )


def dpdemo(folder, *options, **more):
    """Run a dpdemo command in `folder` and give what it did."""
    return processes.run([*PYTHON, "-m", "dpdemo", *options], cwd=folder, env=environment(folder, **more))


def start(folder, *command, **more):
    """Start a Python program in `folder`."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*PYTHON, *command], cwd=folder, env=environment(folder, **more), stdout=pipe, stderr=pipe, text=True
    )


def processes_of(folder):
    """The processes that were started from a test's folder: each rank's command names a file below it."""
    return [number for number, text in _texts("cmdline") if str(folder).encode() in text]


def ranks_of(folder):
    """The ranks that a test's program launched, with temporary files in its folder."""
    variable = f"TMPDIR={folder}\0".encode()
    return [number for number, text in _texts("environ") if variable in text and b"\0RANK=" in text]


def _texts(name):
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                yield int(entry.name), (entry / name).read_bytes()
            except OSError:
                continue

"""Calling the program as its user does."""

import os
import sys
from dataclasses import dataclass

import pytest
from processes import ROOT, run

from dpdemo.cli import main


@dataclass
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def dpdemo(monkeypatch, capsys):
    """Call the program in this process: fast, but stdout is not a real pipe."""

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["dpdemo", *map(str, args)])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        streams = capsys.readouterr()
        return Outcome(code, streams.out, streams.err)

    return call


@pytest.fixture
def program():
    """Call the program as a process of its own."""

    def call(*args, cwd=None, typed=None, **env):
        done = run(
            [sys.executable, "-m", "dpdemo", *map(str, args)],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": ROOT, **env},
            input=typed,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return call

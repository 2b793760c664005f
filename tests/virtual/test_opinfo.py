"""PyTorch's own operator samples agree on a virtual GPU and on the CPU: a tenth here.

All of them: run opinfo_sweep.py. It runs in a process of its own, since importing PyTorch's test helpers
changes global settings.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dpdemo

pytest.importorskip("expecttest", reason="PyTorch's test helpers need it")

SWEEP = Path(__file__).with_name("opinfo_sweep.py")


def python(*arguments: str) -> str:
    """Run Python beside the sweep and return what it printed."""
    package = str(Path(dpdemo.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=SWEEP.parent,
        env={**os.environ, "PYTHONPATH": package},
        check=False,
    )
    return done.stdout + done.stderr[-2000:]


def test_every_tenth_operator_agrees() -> None:
    report = python(str(SWEEP), "--samples", "1", "--every", "10")
    agreed, _, compared = (
        report.rpartition("\n")[0].rpartition("\n")[2].partition(" operators")[0].partition(" of ")
    )
    assert agreed == compared, report
    assert int(compared) > 50, report


def test_the_sweep_can_fail() -> None:
    spoil = (
        "import torch, opinfo_sweep\n"
        "from dpdemo.virtual import dispatch, virtual_gpus\n"
        "def wrong(session, func, args, kwargs):\n"
        "    return args[0].clone() if args[0].is_cuda else func(*args, **kwargs)\n"
        "dispatch._actions[torch.ops.aten.add.Tensor] = wrong\n"
        "with virtual_gpus(1): print(sorted(opinfo_sweep.sweep(['add', 'sub'], limit=1)[0]))\n"
    )
    assert python("-c", spoil).strip() == "['add']"

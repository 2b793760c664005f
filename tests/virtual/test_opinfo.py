"""PyTorch's own operator samples agree on a virtual GPU and on the CPU: a tenth here.

All of them: run tests/tools/opinfo_sweep.py. It runs in a process of its own, since importing PyTorch's
test helpers changes global settings.
"""

import os
import re
import sys
from pathlib import Path

import pytest
from processes import run

import dpdemo

pytest.importorskip("expecttest", reason="PyTorch's test helpers need it")

TOOLS = Path(__file__).parents[1] / "tools"
SWEEP = TOOLS / "opinfo_sweep.py"
MISMATCHES = TOOLS / "mismatch_sweep.py"
OUTPUTS = TOOLS / "out_sweep.py"


def python(*arguments):
    """Run Python beside the sweep and return what it printed."""
    package = str(Path(dpdemo.__file__).parents[1])
    done = run([sys.executable, *arguments], cwd=TOOLS, env={**os.environ, "PYTHONPATH": package})
    return done.stdout + done.stderr[-2000:]


def test_every_tenth_operator_agrees():
    dtypes = ("float32", "bfloat16", "int64", "complex64")
    report = python(str(SWEEP), "--samples", "1", "--every", "10", *repeated("--dtype", dtypes))
    found = re.findall(r"^(\d+) of (\d+) operators agree", report, re.MULTILINE)
    assert len(found) == len(dtypes), report
    for agreed, compared in found:
        assert agreed == compared, report
        assert int(compared) > 30, report


@pytest.mark.slow
def test_a_forgotten_cuda_is_an_error_in_every_eighth_operator():
    guards = ("grad", "no_grad", "inference_mode", "autocast")
    report = python(str(MISMATCHES), "--samples", "2", "--every", "8", *repeated("--under", guards))
    found = re.findall(r"^(\d+) of (\d+) operands left", report, re.MULTILINE)
    assert len(found) == len(guards), report
    for errors, tried in found:
        assert errors == tried, report
        assert int(tried) > 50, report


@pytest.mark.slow
def test_every_operator_writes_into_out_as_on_the_cpu():
    report = python(str(OUTPUTS))
    agreed, compared = re.findall(r"^(\d+) of (\d+) operators agree", report, re.MULTILINE)[0]
    assert agreed == compared, report
    assert int(compared) > 300, report


def repeated(option, values):
    """Write an option once for each value."""
    return [part for value in values for part in (option, value)]


@pytest.mark.slow
def test_the_sweep_of_forgotten_moves_can_fail():
    spoil = (
        "import contextlib, mismatch_sweep\n"
        "from dpdemo.virtual import virtual_gpus\n"
        "from dpdemo.virtual.ops import dispatch, operands\n"
        "dispatch.check_cpu_operands = operands.check_cpu_operands = lambda *_: None\n"
        "with virtual_gpus(1): print(mismatch_sweep.sweep({'mm'}, 1, 1, contextlib.nullcontext)[0])\n"
    )
    assert python("-c", spoil).strip() == "{'mm': ['sample 0, operand 0', 'sample 0, operand 1']}"


@pytest.mark.slow
def test_the_sweep_can_fail():
    spoil = (
        "import torch, opinfo_sweep\n"
        "from dpdemo.virtual import virtual_gpus\n"
        "from dpdemo.virtual.ops import mode\n"
        "def wrong(session, func, args, kwargs):\n"
        "    return args[0].clone() if args[0].is_cuda else func(*args, **kwargs)\n"
        "add = torch.ops.aten.add.Tensor\n"
        "mode.actions[id(add)] = add, wrong\n"
        "with virtual_gpus(1): print(sorted(opinfo_sweep.sweep(['add', 'sub'], limit=1)[0]))\n"
    )
    assert python("-c", spoil).strip() == "['add']"

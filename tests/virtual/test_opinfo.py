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


def repeated(option, values):
    """Write an option once for each value."""
    return [part for value in values for part in (option, value)]


DTYPES = repeated("--dtype", ("float32", "bfloat16", "int64", "complex64"))
GUARDS = repeated("--under", ("grad", "no_grad", "inference_mode", "autocast"))


MISMATCHED = ("--samples", "2", "--every", "8", *GUARDS)


@pytest.mark.parametrize(
    ("tool", "options", "runs", "words", "least"),
    [
        (SWEEP, ("--samples", "1", "--every", "10", *DTYPES), 4, "operators agree", 30),
        pytest.param(MISMATCHES, MISMATCHED, 4, "operands left", 50, marks=pytest.mark.slow),
        pytest.param(OUTPUTS, (), 1, "operators agree", 300, marks=pytest.mark.slow),
    ],
    ids=["every tenth operator", "a forgotten move in every eighth", "writing into out"],
)
def test_operators_do_as_on_the_cpu_and_a_forgotten_move_is_an_error(tool, options, runs, words, least):
    report = python(str(tool), *options)
    found = re.findall(rf"^(\d+) of (\d+) {words}", report, re.MULTILINE)
    assert len(found) == runs, report
    for agreed, compared in found:
        assert agreed == compared, report
        assert int(compared) > least, report


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

"""A short run of each fuzzer: run by hand, they go on for minutes."""

import sys

import commandline
import dataparallel
import interrupts
import pytest
from fastpart import mostly_slow
from processes import needs_no_gpu, run


def hunt(fuzzer, most):
    """Run a fuzzer by itself: in a build for CUDA, no fork goes backward once its parent has."""
    done = run([sys.executable, fuzzer.__file__, "--seed", "0", "--seconds", "600", "--most", str(most)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{most} {fuzzer.WHAT}, 0 with a fault" in done.stdout


@pytest.mark.slow
def test_random_command_lines_end_with_an_exit_code_of_their_own_and_no_traceback():
    hunt(commandline, 200)


@pytest.mark.slow
@needs_no_gpu
def test_ctrl_c_at_random_moments_leaves_nothing_behind():
    hunt(interrupts, 6)


@needs_no_gpu
@pytest.mark.parametrize("seed", mostly_slow(range(6), 6))
def test_random_programs_equal_chunks_by_hand(seed):
    runs = list(dataparallel.runs(seed, 600, most=30))
    assert {name for _, given, _ in runs for name in given["names"]} == dataparallel.LAYERS.keys()
    found = [(number, given, what) for number, given, what in runs if what]
    assert not found, found[:3]

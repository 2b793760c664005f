"""Shared by all tests: no real GPU, the same examples in each run, and programs that react to Ctrl-C.

Real GPUs are hidden, for the suite is about virtual ones and the CPU; `make test-gpus` shows them to the
tests that need them. With HYPOTHESIS_PROFILE=fuzz the examples are new in each run, and ten times as many:
CONTRIBUTING.md has the command.
"""

import os
import signal
import sys

import hypothesis

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # read when torch first asks for GPUs

hypothesis.settings.register_profile(
    "suite",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # a loaded machine is not the test's fault
    derandomize=True,
    max_examples=200,
)
hypothesis.settings.register_profile(
    "fuzz", hypothesis.settings.get_profile("suite"), derandomize=False, max_examples=2000, print_blob=True
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts a job in the background deaf to Ctrl-C, and so would be every program that a test starts
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup():
    """Reset torch's random numbers for each test, whichever tests went before it."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)

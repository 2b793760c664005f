"""What all tests share: drawn examples that are the same each run, and programs that heed Ctrl-C."""

import signal
import sys

import hypothesis

hypothesis.settings.register_profile(
    "suite",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # a loaded machine is no fault of the test
    derandomize=True,
    max_examples=200,
)
hypothesis.settings.load_profile("suite")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts a job in the background deaf to Ctrl-C, and so would be every program that a test starts
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup():
    """Let each test draw torch's same random numbers, whichever tests went before it."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)

"""Shared by all tests: no real GPU, the same examples in each run, and programs that react to Ctrl-C.

Real GPUs are hidden, for the suite is about virtual ones and the CPU; `make test-gpus` shows them to the
tests that need them. With HYPOTHESIS_PROFILE=fuzz the examples are new in each run, and ten times as many:
CONTRIBUTING.md has the command.
"""

import os
import signal
import sys

import hypothesis
import pytest

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


@pytest.fixture
def users_folder(tmp_path, monkeypatch):
    """Return a function that writes files, by name, into the current folder; their modules are forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(files):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        return tmp_path

    yield write
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]

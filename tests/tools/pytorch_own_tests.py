"""Run PyTorch's own multi-GPU tests on virtual GPUs: ``python pytorch_own_tests.py PATH [-n GPUS] [NAME…]``.

PATH is test/distributed/test_data_parallel.py of a PyTorch source tree; nothing of that file is kept here.
PyTorch's test helpers count the GPUs when they are imported, so they are imported inside the block. What has
moved in PyTorch since a file was written is put back under its old name below.
"""

import argparse
import importlib.util
import sys
import unittest
from pathlib import Path
from typing import Any

import torch

from dpdemo.virtual import virtual_gpus


class Verdicts(unittest.TextTestResult):
    """Prints one line per test."""

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().addSuccess(test)
        print("passed ", test.id())

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        super().addFailure(test, err)
        print("failed ", test.id(), "--", str(err[1]).partition("\n")[0])

    addError = addFailure  # noqa: N815

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        print("skipped", test.id(), "--", reason)


def restore_old_names() -> None:
    """Restore the names of PyTorch's test helpers in 1.13."""
    from torch.testing._internal import common_utils as helpers

    if not hasattr(helpers, "sandcastle_skip_if"):
        helpers.sandcastle_skip_if = helpers.skip_but_pass_in_sandcastle_if
    # One test asks only whether this name exists (real GPUs need NCCL for it; virtual ones need nothing).
    if not hasattr(torch.distributed, "ProcessGroupNCCL"):
        torch.distributed.ProcessGroupNCCL = None


def load(path: Path) -> Any:
    """Import the file of tests."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    """Run the tests; the exit code is 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("-n", "--gpus", type=int, default=2)
    parser.add_argument("names", nargs="*", help="run only tests whose id contains one of these")
    options = parser.parse_args()
    with virtual_gpus(options.gpus):
        restore_old_names()
        tests = unittest.defaultTestLoader.loadTestsFromModule(load(options.path))
        chosen = [test for group in tests for test in group if _wanted(test.id(), options.names)]
        outcome = unittest.TextTestRunner(resultclass=Verdicts, verbosity=0).run(unittest.TestSuite(chosen))
    num_failed = len(outcome.failures) + len(outcome.errors)
    num_passed = outcome.testsRun - num_failed - len(outcome.skipped)
    print(f"{num_passed} passed, {num_failed} failed, {len(outcome.skipped)} skipped")
    return 1 if num_failed else 0


def _wanted(name: str, parts: list[str]) -> bool:
    return not parts or any(part in name for part in parts)


if __name__ == "__main__":
    sys.exit(main())

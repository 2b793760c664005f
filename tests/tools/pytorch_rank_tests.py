"""Run PyTorch's own tests of torch.distributed on virtual GPUs: ``python pytorch_rank_tests.py [NAME…]``.

The tests come with the installed torch: `DistributedTest` of torch/testing/_internal/distributed, with the
backend "nccl". Each test is run by ranks of its own, which are forked from a process that has imported all.
It prints a line for each test; the exit code is 1 if one failed that is not among the known exceptions.
"""

import argparse
import os
import sys
import tempfile
import time
import traceback
import unittest
from contextlib import suppress
from pathlib import Path
from typing import Any

from dpdemo.virtual import virtual_gpus

_NAMES = "profiles show gloo's names of collectives"
_SELF = "gloo cannot send from a rank to itself"
_TIMEOUT = "gloo words a time-out otherwise"
KNOWN = {
    "test_DistributedDataParallelCPU": "it trains on the CPU under NCCL",
    "test_DistributedDataParallelCPU_grad_is_view": "it trains on the CPU under NCCL",
    "test_SyncBatchNorm_process_group": "it needs torchvision",
    "test_batch_isend_irecv_nccl": _SELF,
    "test_batch_isend_irecv_self_nccl": _SELF,
    "test_ddp_profiling_torch_profiler": _NAMES,
    "test_ddp_sink_noclone": "a dispatch mode of the test itself hides which tensors C++ made",
    "test_ddp_uneven_inputs": "its convolutions of 2000 × 2000 pixels take ten minutes on two cores",
    "test_monitored_barrier_allreduce_hang": _TIMEOUT,
    "test_monitored_barrier_allreduce_hang_wait_all_ranks": _TIMEOUT,
    "test_send_recv_nccl_autograd_profiler": _NAMES,
    "test_send_recv_nccl_torch_profiler": _NAMES,
    "test_sparse_all_reduce_sum_cuda": "NCCL refuses it, too",
}
"""By name of a test, why it cannot pass."""
PASSED, FAILED, SKIPPED = 0, 1, 90
PATIENCE_S = 240.0


def import_suite(folder: Path, ranks: int) -> Any:
    """Import PyTorch's tests, which read their settings from the environment."""
    os.environ |= {"BACKEND": "nccl", "WORLD_SIZE": str(ranks), "TEMP_DIR": str(folder)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    from torch.testing._internal.distributed import distributed_test

    return distributed_test


def run_rank(suite: Any, name: str, rank: int, folder: Path) -> int:
    """Run one test as one rank, and return its exit code."""
    import torch.distributed as dist

    class Case(suite.DistributedTest._DistTestBase, suite.TestDistBackend):
        """The mixin in a class that can be run, as PyTorch's own test files make it."""

        def call_dist_op(self, *args: Any, **kwargs: Any) -> Any:
            """Look for no event "nccl:all_reduce" in a profile: there, collectives have gloo's name."""
            return super().call_dist_op(*args, **kwargs | {"expect_event": False})

    case = Case(name)
    case.rank, case.file_name = rank, str(folder / "store")
    ranks = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("nccl", init_method=case.init_method, rank=rank, world_size=ranks)
    try:
        getattr(case, name)()
        suite.Barrier.sync()
    except unittest.SkipTest as reason:
        print("skipped:", reason)
        return SKIPPED
    dist.destroy_process_group()
    return PASSED


def forked(suite: Any, name: str, rank: int, folder: Path) -> int:
    """Start a rank, and return its process."""
    process = os.fork()
    if process:
        return process
    code = FAILED
    try:
        output = os.open(folder / f"output{rank}", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        with virtual_gpus(int(os.environ["WORLD_SIZE"])):
            code = run_rank(suite, name, rank, folder)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else FAILED
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code)


def run_test(suite: Any, name: str, ranks: int) -> tuple[str, str]:
    """Run one test, and return its verdict with the end of its output."""
    method = getattr(suite.DistributedTest._DistTestBase, name)
    if getattr(method, "__unittest_skip__", False):
        return "skipped", method.__unittest_skip_why__
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        for name_of_folder in ("barrier", "test_dir"):
            (folder / name_of_folder).mkdir()
        os.environ["TEMP_DIR"] = text
        running = {forked(suite, name, rank, folder): rank for rank in range(ranks)}
        codes: dict[int, int] = {}
        deadline = time.monotonic() + PATIENCE_S
        while running and time.monotonic() < deadline and FAILED not in codes.values():
            for process in list(running):
                ended, status = os.waitpid(process, os.WNOHANG)
                if ended:
                    codes[running.pop(process)] = os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        is_hung = bool(running) and FAILED not in codes.values()
        for process in running:
            with suppress(ProcessLookupError):
                os.kill(process, 9)
            os.waitpid(process, 0)
        outputs = [folder / f"output{rank}" for rank in sorted(codes) if codes[rank]]
        said = "".join(output.read_text(errors="replace")[-1500:] for output in outputs)
    if is_hung:
        return "hung", said
    if not any(codes.values()):
        return "passed", ""
    is_skipped = all(code == SKIPPED or 70 <= code < 100 for code in codes.values())
    return ("skipped" if is_skipped else "failed"), said


def main() -> int:
    """Run the tests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("-v", "--verbose", action="store_true", help="print the output of failed tests")
    parser.add_argument("names", nargs="*", help="run only tests whose name contains one of these")
    options = parser.parse_args()
    counts = {"passed": 0, "failed": 0, "hung": 0, "skipped": 0, "known": 0}
    with tempfile.TemporaryDirectory() as folder:
        with virtual_gpus(options.ranks):  # the decorators of tests count GPUs
            suite = import_suite(Path(folder), options.ranks)
        names = [name for name in dir(suite.DistributedTest._DistTestBase) if name.startswith("test_")]
        for name in names:
            if options.names and not any(part in name for part in options.names):
                continue
            verdict, said = ("known", KNOWN[name]) if name in KNOWN else run_test(suite, name, options.ranks)
            counts[verdict] += 1
            last = said.strip().splitlines()[-1:] or [""]
            print(f"{verdict:<8}{name}  {last[0][:160]}", flush=True)
            if options.verbose and verdict in {"failed", "hung"}:
                print(said)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return int(bool(counts["failed"] + counts["hung"]))


if __name__ == "__main__":
    sys.exit(main())

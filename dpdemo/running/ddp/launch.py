"""The strategy of DistributedDataParallel: a process per rank.

Under a launcher such as torchrun this process is one rank already. Otherwise it is the launcher
(`running/ranks.py`) of ranks that leave their outcomes in a folder (`worker.py`).
"""

import os
import signal
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from dpdemo.config.fields import Config
from dpdemo.config.load import make_config
from dpdemo.config.ranks import TIMEOUT_SECONDS, as_wait
from dpdemo.errors import DpdemoError, RunError, UsageError
from dpdemo.ranks.launch import Outcome, launch
from dpdemo.results.devices import Devices
from dpdemo.results.distribution import RankPlace
from dpdemo.results.split import SplitReport
from dpdemo.running.ddp.joining import join, node_devices
from dpdemo.running.ddp.worker import Refusal, leave, take
from dpdemo.running.ddp.world import launched_world
from dpdemo.running.interrupts import RunInterrupted

if TYPE_CHECKING:
    from dpdemo.running.epoch import Progress

_WORKER = "dpdemo.running.ddp.worker"
_NO_NUMPY = "ignore:Failed to initialize NumPy"  # torch says so on import, and nothing here needs it


def run_ddp(
    config: Config, progress: "Progress | None" = None, timeout: float = TIMEOUT_SECONDS
) -> SplitReport:
    """Run the epoch of a checked config under DistributedDataParallel.

    Raises:
        UsageError: if it cannot be run here as asked: fewer processes are never started.
        RunError: if a rank fails; all others are stopped.
        RunInterrupted: on Ctrl-C, with the report of the batches that every rank had done.

    """
    longest_wait = as_wait(timeout)
    world = launched_world()
    if world is not None:
        return join(config, world, progress, longest_wait)
    if config.nodes > 1:
        raise _needs_launcher(config)
    devices = node_devices(config)
    with tempfile.TemporaryDirectory(prefix="dpdemo-", ignore_cleanup_errors=True) as name:
        return _launch(_resolved(config, devices), devices, Path(name), progress, longest_wait)


def _launch(
    config: Config, devices: Devices, folder: Path, progress: "Progress | None", timeout: timedelta
) -> SplitReport:
    """Start a rank on each device, wait for all, and take the report that rank 0 left."""
    leave(folder / "job", (config, timeout))
    # -P: the ranks import from where this process does, and from nowhere else
    command = [sys.executable, "-P", "-m", _WORKER, str(folder), str(os.getpid())]

    def on_look() -> None:
        found = None if progress is None else take(folder / "progress")
        if progress is not None and found is not None:
            progress(*found)

    outcome = launch(len(devices), command, _environment(), has_terminal=False, on_look=on_look)
    if outcome.stopped_by is not None:
        raise _interrupted(folder, len(devices), outcome.stopped_by)
    if outcome.code:
        raise _failed(outcome, devices)
    report: SplitReport | None = take(folder / "result")
    if report is None:
        raise RunError("expected a result of rank 0, got none: did the model end its process?")
    return report


def _environment() -> dict[str, str]:
    """Return what the ranks inherit; what the user has set is kept."""
    return {
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        **os.environ,
        "PYTHONWARNINGS": ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), _NO_NUMPY))),
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),  # noqa: PTH100
    }


def _resolved(config: Config, devices: Devices) -> Config:
    """Write down which devices were chosen, so that a prediction can name the same ones."""
    if config.gpus not in {None, "all"} or devices.kind == "cpu":
        return config
    return make_config(config.values() | {"gpus": len(devices)})


def _needs_launcher(config: Config) -> UsageError:
    return UsageError(
        f"expected to be started on each of {config.nodes} nodes, got this process alone",
        key="nodes",
        hint=f"on every node: torchrun --nnodes {config.nodes} --nproc-per-node RANKS --rdzv-backend c10d "
        "--rdzv-endpoint HOST:29400 -m dpdemo run --strategy ddp; "
        "or preview with `dpdemo simulate --strategy ddp`",
    )


def _failed(outcome: Outcome, devices: Devices) -> DpdemoError:
    """Return the error of the rank that failed first, or how its process ended."""
    first = next(iter(outcome.failures or [rank for rank in outcome.ranks if rank.exit_code()]))
    error = first.error
    if isinstance(error, Refusal):
        kind = UsageError if error.is_usage else RunError
        return kind(error.text, key=error.key, hint=error.hint)
    place, code = RankPlace(first.number, 0, first.number, devices[first.number]), first.exit_code()
    if code >= 0:
        return RunError(
            f"expected every rank to the end, got exit code {code} of {place}",
            hint="its own output is above",
        )
    is_silent = -code in {signal.SIGTERM, signal.SIGKILL}
    return RunError(
        f"expected every rank to the end, got {signal.Signals(-code).name} for {place}",
        hint="was it killed from outside, or out of memory?" if is_silent else "where it crashed is above",
    )


def _interrupted(folder: Path, num_ranks: int, by: signal.Signals) -> BaseException:
    if by != signal.SIGINT:
        return RunError(f"expected to run to the end, got {by.name}; all ranks are stopped")
    left = [take(folder / f"record-{rank}") for rank in range(num_ranks)]
    if all(left):
        from dpdemo.running.ddp.records import merge

        return RunInterrupted(merge(left[0][1], [record for record, _ in left], partial=True))
    return KeyboardInterrupt()

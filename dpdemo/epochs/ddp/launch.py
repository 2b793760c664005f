"""The strategy of DistributedDataParallel: a process per rank.

Under torchrun this process is one rank already. Otherwise it launches the epoch as a program (`__main__.py`)
as `exec --ranks` does, and makes a report of the events of its ranks.
"""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dpdemo.config.fields import Config
from dpdemo.config.load import make_config
from dpdemo.config.ranks import TIMEOUT_SECONDS, as_wait
from dpdemo.epochs.ddp.records import EpochProgress, Job, RankRecord, Refusal, merge
from dpdemo.epochs.ddp.world import launched_world, ranks_of
from dpdemo.epochs.interrupts import RunInterrupted
from dpdemo.errors import DpdemoError, RunError, UsageError
from dpdemo.ranks.hardware import STARTUP
from dpdemo.ranks.launch import Outcome, Rank, launch
from dpdemo.results.devices import Devices
from dpdemo.results.distribution import RankPlace
from dpdemo.results.split import SplitReport
from dpdemo.startup import hook

if TYPE_CHECKING:
    from dpdemo.epochs.epoch import Progress

_NO_NUMPY = "ignore:Failed to initialize NumPy"  # torch says so on import, and nothing here needs it


def run_ddp(
    config: Config,
    progress: "Progress | None" = None,
    timeout: float = TIMEOUT_SECONDS,
    *,
    virtual: bool = False,
) -> SplitReport:
    """Run the epoch of a checked config under DistributedDataParallel.

    Raises:
        UsageError: if it cannot be run here as asked: fewer processes are never started.
        RunError: if a rank fails; all others are stopped.
        RunInterrupted: on Ctrl-C, with the report of the batches that every rank had done.

    """
    job = Job(config, as_wait(timeout), virtual)
    world = launched_world()
    nodes = config.nodes if world is None else world.num_nodes
    if virtual and nodes > 1:
        raise UsageError(
            f"expected one node with virtual GPUs, got {nodes}",
            key="virtual",
            hint="leave it out, and ranks of several nodes run on their CPUs with {processes=2}",
        )
    if world is not None:
        from dpdemo.epochs.ddp.rank import join

        return join(job, world, progress)
    if config.nodes > 1:
        raise _needs_launcher(config)
    devices = ranks_of(config, virtual=virtual)
    text = replace(job, config=_resolved(config, devices)).to_text()
    # -P: the ranks import from where this process does, and from nowhere else
    command = [sys.executable, "-P", "-m", __package__, text]

    def on_look(ranks: Sequence[Rank]) -> None:
        last = next((event for event in reversed(ranks[0].events) if isinstance(event, EpochProgress)), None)
        if progress is not None and last is not None:
            progress(last.done, last.total)

    environment = _environment(hides_gpus=virtual)
    outcome = launch(len(devices), command, environment, has_terminal=False, on_look=on_look)
    return report_of(outcome, devices, virtual=virtual)


def report_of(outcome: Outcome, devices: Devices, *, virtual: bool = False) -> SplitReport:
    """Make a report of what the ranks noted, or raise the error of the one that failed first."""
    events = [next((e for e in rank.events if isinstance(e, RankRecord)), None) for rank in outcome.ranks]
    records = [event for event in events if event is not None]
    if outcome.stopped_by == signal.SIGINT:
        if len(records) < len(devices):
            raise KeyboardInterrupt
        raise RunInterrupted(merge(records, virtual=virtual, partial=True))
    if outcome.stopped_by is not None:
        raise RunError(f"expected to run to the end, got {outcome.stopped_by.name}; all ranks are stopped")
    if outcome.code:
        raise _failed(outcome, devices)
    if len(records) < len(devices):
        raise RunError("expected a result of every rank, got none: did the model end its process?")
    return merge(records, virtual=virtual)


def _environment(*, hides_gpus: bool) -> dict[str, str]:
    """Return what the ranks inherit; what the user has set is kept."""
    folders = [STARTUP, *map(os.path.abspath, sys.path)]
    return {
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        **os.environ,
        **({hook.VISIBLE: ""} if hides_gpus else {}),
        hook.LAUNCHER: str(os.getpid()),  # a rank ends with its launcher
        "PYTHONWARNINGS": ",".join(filter(None, (os.environ.get("PYTHONWARNINGS"), _NO_NUMPY))),
        "PYTHONPATH": os.pathsep.join(folders),
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
        return kind(error.text, key=error.at, hint="".join(error.hints))
    place, code = RankPlace(first.number, 0, first.number, devices[first.number]), first.exit_code()
    how, hint = f"exit code {code} of", "its own output is above"
    if code < 0:
        how, hint = f"{signal.Signals(-code).name} for", "where it crashed is above"
    if -code in {signal.SIGTERM, signal.SIGKILL}:
        hint = "was it killed from outside, or out of memory?"
    return RunError(f"expected every rank to the end, got {how} {place}", hint=hint)

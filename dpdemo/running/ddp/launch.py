"""The strategy of DistributedDataParallel: a process per rank, launched by torch's elastic agent.

Under a launcher such as torchrun this process is one rank already. Otherwise it starts the ranks itself, on
this machine, through `torch.distributed.launcher.launch_agent`, which is what torchrun does
(`torch/distributed/run.py`). All of them meet in a folder: nothing here listens on a network but loopback.
"""

import itertools
import os
import sys
import tempfile
import uuid
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from signal import SIGINT
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, launch_agent
from torch.distributed.rendezvous import rendezvous

from dpdemo.config.fields import Config
from dpdemo.config.load import make_config
from dpdemo.config.ranks import TIMEOUT_SECONDS, as_wait
from dpdemo.errors import DpdemoError, RunError, UsageError
from dpdemo.results.devices import Devices
from dpdemo.results.distribution import RankPlace
from dpdemo.results.split import SplitReport
from dpdemo.running.ddp.environment import launching, polled
from dpdemo.running.ddp.rank import PeerLostError, Rank, first_sentence, run_rank
from dpdemo.running.ddp.records import merge
from dpdemo.running.ddp.worker import Job, leave, take
from dpdemo.running.ddp.world import World, in_world, launched_world
from dpdemo.running.epoch import Progress
from dpdemo.running.interrupts import RunInterrupted
from dpdemo.running.visible import chosen_devices, num_visible

_RUNS = itertools.count()
_SHUTDOWN_SECONDS = 5  # from Ctrl-C to SIGKILL, for a rank that does not listen
_AGENTS_SIGNALS = {"SIGTERM", "SIGKILL"}  # to stop the other ranks, and those that do not listen
_START_RANK = """
import gc, os, signal, sys
gc.disable()  # importing torch makes a million objects and no garbage
signal.signal(signal.SIGINT, lambda *_: os._exit(130))
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
from pathlib import Path
from dpdemo.running.ddp.worker import main
gc.freeze()
gc.enable()
main(Path(sys.argv[1]))
"""


def run_ddp(
    config: Config, progress: Progress | None = None, timeout: float = TIMEOUT_SECONDS
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
        return _join(config, world, progress, longest_wait)
    if config.nodes > 1:
        raise _needs_launcher(config)
    devices = _node_devices(config)
    _check_backend(devices)
    job = Job(_resolved(config, devices), tuple(devices), longest_wait, progress is not None)
    report: SplitReport = launch(job, progress)
    return report


def _join(config: Config, world: World, progress: Progress | None, timeout: timedelta) -> SplitReport:
    """Run as one of the ranks that a launcher started."""
    config = in_world(config, world, num_visible())
    devices = _node_devices(config)
    _check_backend(devices)
    where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    try:
        store, _, _ = next(rendezvous("env://", world.rank, world.size, timeout=timeout))
    except Exception as error:
        raise _no_rendezvous(world, where, timeout, error) from error
    # a process may run several times: each run has its own names in the store of the launcher
    store = dist.PrefixStore(f"dpdemo/{next(_RUNS)}", store)  # type: ignore[attr-defined]  # as documented
    store.set_timeout(timeout)
    device = torch.device(devices[world.local_rank])
    report: SplitReport = run_rank(
        config, Rank(world, device, store, timeout), progress if world.rank == 0 else None
    )
    return report


def launch(job: Job, progress: Progress | None = None) -> Any:
    """Start a rank on each device of a job, wait for all, and take what rank 0 left.

    Raises:
        RunError: if a rank fails; all others are stopped.
        RunInterrupted: on Ctrl-C, with the report of the batches that every rank had done.

    """
    with tempfile.TemporaryDirectory(prefix="dpdemo-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        leave(folder / "job", job)
        try:
            with launching(len(job.devices)), polled(folder / "progress", progress, take):
                launch_agent(_launch_config(folder, job), *_command(folder))
        except ChildFailedError as error:
            raise _failed(folder, error, job.devices) from None
        except (SignalException, KeyboardInterrupt) as error:
            raise _interrupted(folder, job, error) from None
        result = take(folder / "result")
    if result is None:
        raise RunError("expected a result of rank 0, got none: did the model end its process?")
    return result


def _command(folder: Path) -> tuple[str, list[str]]:
    # -P: the ranks import from where this process does (see `launching`), and from nowhere else
    return sys.executable, ["-P", "-c", _START_RANK, str(folder)]


def _launch_config(folder: Path, job: Job) -> LaunchConfig:
    seconds = max(1, round(job.timeout.total_seconds()))
    # only newer torch knows it (pytorch/pytorch#172596); without it a rank has 30 seconds
    optional: dict[str, Any] = {"shutdown_timeout": _SHUTDOWN_SECONDS}
    known = {field.name for field in fields(LaunchConfig)}
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=len(job.devices),
        run_id=uuid.uuid4().hex,
        role="rank",
        rdzv_backend="c10d",
        rdzv_endpoint=str(folder / "rendezvous"),
        rdzv_configs={"store_type": "file", "timeout": seconds, "join_timeout": seconds},
        max_restarts=0,
        monitor_interval=0.05,
        local_addr="127.0.0.1",
        logs_specs=DefaultLogsSpecs(log_dir=str(folder / "logs"), tee=Std.ERR),
        log_line_prefix_template="[rank ${rank}] ",
        **{key: value for key, value in optional.items() if key in known},
    )


def _node_devices(config: Config) -> Devices:
    if config.gpus is None and config.processes is not None:
        return Devices.cpu(config.processes)
    return chosen_devices(config)


def _resolved(config: Config, devices: Devices) -> Config:
    """Write down which devices were chosen, so that a prediction can name the same ones."""
    if config.gpus not in {None, "all"} or devices.kind == "cpu":
        return config
    return make_config(config.values() | {"gpus": len(devices)})


def _check_backend(devices: Devices) -> None:
    backend, there = (
        ("nccl", dist.is_nccl_available) if devices.kind == "cuda" else ("gloo", dist.is_gloo_available)
    )
    if not dist.is_available() or not there():
        raise UsageError(
            f"expected a torch with {backend}, which {devices.kind} ranks talk through, "
            f"got torch {torch.__version__} without it",
            hint="install a torch from pytorch.org, or preview with `dpdemo simulate --strategy ddp`",
        )


def _needs_launcher(config: Config) -> UsageError:
    return UsageError(
        f"expected to be started on each of {config.nodes} nodes, got this process alone",
        key="nodes",
        hint=f"on every node: torchrun --nnodes {config.nodes} --nproc-per-node RANKS --rdzv-backend c10d "
        "--rdzv-endpoint HOST:29400 -m dpdemo run --strategy ddp; "
        "or preview with `dpdemo simulate --strategy ddp`",
    )


def _no_rendezvous(world: World, where: str, timeout: timedelta, error: Exception) -> DpdemoError:
    if "EADDRINUSE" in str(error):
        return RunError(
            "expected a free port, got one in use",
            place=f"{where} (MASTER_ADDR and MASTER_PORT)",
            hint="choose another: torchrun --master-port PORT, or --rdzv-endpoint HOST:PORT",
        )
    return RunError(
        f"expected {world.size} ranks to meet within {timeout.total_seconds():g} s, got rank {world.rank} "
        f"waiting: {first_sentence(error)}",
        place=where,
        hint="start every node, check that they reach that address, or wait longer with {timeout=}",
    )


def _failed(folder: Path, error: ChildFailedError, devices: tuple[str, ...]) -> DpdemoError:
    """Find which rank failed first, and how."""
    said: DpdemoError | None = take(folder / "failure")
    crashed = _crashed(error)
    if said is not None and (crashed is None or not isinstance(said, PeerLostError)):
        return said
    number = error.get_first_failure()[0] if crashed is None else crashed
    first = error.failures[number]
    place = RankPlace(number, 0, first.local_rank, devices[first.local_rank])
    if first.exitcode >= 0:
        return RunError(
            f"expected every rank to the end, got exit code {first.exitcode} of {place}",
            hint="what it said stands above",
        )
    killed = first.signal_name() in _AGENTS_SIGNALS
    return RunError(
        f"expected every rank to the end, got {first.signal_name()} for {place}",
        hint="was it killed from outside, or out of memory?" if killed else "where it crashed stands above",
    )


def _crashed(error: ChildFailedError) -> int | None:
    """Find the rank that a signal ended which the agent does not send to stop one, or else SIGKILL."""
    signals = {rank: one.signal_name() for rank, one in error.failures.items() if one.exitcode < 0}
    own = [rank for rank, name in signals.items() if name not in _AGENTS_SIGNALS]
    return next(iter(own + [rank for rank, name in signals.items() if name == "SIGKILL"]), None)


def _interrupted(folder: Path, job: Job, error: BaseException) -> BaseException:
    if isinstance(error, SignalException) and error.sigval != SIGINT:
        return RunError(f"expected to run to the end, got {error.sigval.name}; all ranks are stopped")
    records = [take(folder / f"record-{rank}") for rank in range(len(job.devices))]
    if all(records):
        return RunInterrupted(merge(job.config, records, partial=True))
    return KeyboardInterrupt()

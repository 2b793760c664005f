"""The process of one rank that `ddp.py` launches: it reads a job from a folder and leaves the outcome.

What it leaves: `result` (rank 0), `failure` (the rank that failed first), `record-N` (rank N, interrupted),
`progress` (rank 0). Its standard output goes where its errors go: stdout is for the report alone. It writes
whole lines, which the agent then prefixes with the rank.
"""

import faulthandler
import os
import pickle
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from dpdemo.config.fields import Config
from dpdemo.errors import DpdemoError, PeerFailedError
from dpdemo.running.ddp.rank import Rank, Work, run_rank
from dpdemo.running.ddp.world import World, launched_world
from dpdemo.running.epoch import Progress
from dpdemo.running.interrupts import RankInterrupted


@dataclass(frozen=True)
class Job:
    """What all ranks of a run are told; `devices` has one per local rank."""

    config: Config
    devices: tuple[str, ...]
    timeout: timedelta
    tells_progress: bool = False
    work: Work | None = None
    parent: int = field(default_factory=os.getpid)


def leave(path: Path, value: object) -> None:
    """Write an outcome whole or not at all.

    torch's own file of errors (`record`, torch/distributed/elastic/multiprocessing/errors) may be half
    written: the agent stops all ranks when the first has failed, and then fails to read it.
    """
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_bytes(pickle.dumps(value))
    unfinished.replace(path)


def take(path: Path) -> Any:
    """Read an outcome, or None where there is none."""
    # the folder is the parent's own, readable by its user only
    return pickle.loads(path.read_bytes()) if path.exists() else None  # noqa: S301


def main(folder: Path) -> None:
    """Run the rank that the environment names, and exit with its code."""
    signal.signal(signal.SIGINT, _interrupt_once)
    faulthandler.enable()  # a crash in C++ says where
    os.dup2(2, 1)
    for stream in (sys.stdout, sys.stderr):  # a line written in pieces would run into another rank's
        stream.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    job: Job = take(folder / "job")
    _end_with(job.parent)
    world = launched_world()
    assert world is not None  # noqa: S101 - the agent sets the environment
    try:
        _work(job, folder, world)
    except RankInterrupted as interrupt:
        leave(folder / f"record-{world.rank}", interrupt.record)
        exit_at_once(130)
    except KeyboardInterrupt:
        exit_at_once(130)
    except PeerFailedError as error:
        exit_at_once(error.exit_code)
    except DpdemoError as error:
        leave(folder / "failure", type(error)(error.message, key=error.key, hint=error.raw_hint))
        exit_at_once(error.exit_code)
    exit_at_once(0)


def _work(job: Job, folder: Path, world: World) -> None:
    device = torch.device(job.devices[world.local_rank])
    store = dist.FileStore(str(folder / "store"), world.size)  # type: ignore[attr-defined]  # as documented
    store.set_timeout(job.timeout)
    progress = _teller(folder) if job.tells_progress and world.rank == 0 else None
    result = run_rank(job.config, Rank(world, device, store, job.timeout), progress, job.work)
    if world.rank == 0:
        leave(folder / "result", result)


def _teller(folder: Path) -> Progress:
    return lambda done, total: leave(folder / "progress", (done, total))


def _interrupt_once(number: int, frame: FrameType | None) -> None:
    del number, frame
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the agent repeats it while we write down what we saw
    raise KeyboardInterrupt


def _end_with(parent: int) -> None:
    """End this process when the one that launched it is gone, for whatever reason."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def exit_at_once(code: int) -> None:
    """End the process of a rank, without Python's own way of shutting down.

    That can wait for ranks that never answer, and aborts where it meets a thread of gloo that is still
    letting go of tensors: "terminate called without an active exception" (pytorch/pytorch#179291).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

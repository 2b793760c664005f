"""A rank that `run --strategy ddp` started: it does what a rank of torchrun does, and leaves the outcome.

The launcher's folder has `result` and `progress` (rank 0) and `record-N` (rank N, interrupted). A failure
is a line of the rank's notes, as of any program's rank.
"""

import contextlib
import os
import pickle
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from dpdemo.collecting import no_collections
from dpdemo.errors import DpdemoError, PeerFailedError, UsageError
from dpdemo.ranks.events import Failure
from dpdemo.ranks.log import NOTES
from dpdemo.running.ddp.joining import join
from dpdemo.running.ddp.world import launched_world
from dpdemo.running.interrupts import RankInterrupted


@dataclass(frozen=True)
class Refusal(Failure):
    """An error of ours, with what the launcher needs to raise it again."""

    is_usage: bool = False
    key: str = ""
    hint: str = ""


def leave(path: Path, value: object) -> None:
    """Write an outcome whole or not at all."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_bytes(pickle.dumps(value))
    unfinished.replace(path)


def take(path: Path) -> Any:
    """Read an outcome, or None where there is none."""
    # the folder is the parent's own, readable by its user only
    return pickle.loads(path.read_bytes()) if path.exists() else None  # noqa: S301


def main() -> None:
    """Run the rank that the environment names, and exit with its code."""
    import faulthandler

    folder, parent = Path(sys.argv[1]), int(sys.argv[2])
    faulthandler.enable()  # a crash in C++ prints where
    os.dup2(2, 1)  # stdout is for the report alone
    for stream in (sys.stdout, sys.stderr):  # a line written in pieces would run into another rank's
        stream.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    _end_with(parent)
    signal.signal(signal.SIGTERM, _interrupt_once)
    code = 0
    try:
        with no_collections():
            import torch  # noqa: F401
        _run(folder)
    except KeyboardInterrupt:
        code = 130
    except DpdemoError as error:
        code = error.exit_code
    exit_at_once(code)


def _run(folder: Path) -> None:
    world = launched_world()
    assert world is not None  # noqa: S101 - the launcher sets the environment
    rank = world.rank
    config, timeout = take(folder / "job")
    try:
        report = join(config, world, lambda done, total: leave(folder / "progress", (done, total)), timeout)
        if rank == 0:
            leave(folder / "result", report)
    except RankInterrupted as interrupt:
        leave(folder / f"record-{rank}", (interrupt.record, interrupt.config))
        raise
    except DpdemoError as error:
        with contextlib.suppress(OSError):  # a full disk
            if not isinstance(error, PeerFailedError):
                note(error)
        raise


def note(error: DpdemoError) -> None:
    """Tell the launcher how this rank failed, and whether by itself."""
    from dpdemo.running.ddp.rank import PeerLostError

    event = Refusal(
        text=error.message,
        at="",
        is_lost=isinstance(error, PeerLostError),
        t=time.time(),
        is_usage=isinstance(error, UsageError),
        key=error.key,
        hint=error.raw_hint,
    )
    with (Path(os.environ[NOTES]) / f"{os.getpid()}.jsonl").open("ab") as file:
        file.write(event.to_line())


def _interrupt_once(number: int, frame: FrameType | None) -> None:
    del number, frame
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher repeats it while we write down what we saw
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


if __name__ == "__main__":
    main()

"""The epoch as a program: a rank that `run --strategy ddp` launched, whose outcome is events in its notes."""

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from dpdemo.collecting import no_collections
from dpdemo.epochs.ddp.records import Job, PeerLostError, Refusal
from dpdemo.epochs.ddp.world import launched_world
from dpdemo.errors import DpdemoError, UsageError
from dpdemo.ranks.log import NOTES
from dpdemo.ranks.observe.notes import Notes
from dpdemo.ranks.processes import exit_at_once


def main() -> None:
    """Run the rank that the environment names, and exit with its code."""
    import faulthandler

    faulthandler.enable()  # a crash in C++ prints where
    os.dup2(2, 1)  # stdout is for the report alone
    for stream in (sys.stdout, sys.stderr):  # a line written in pieces would run into another rank's
        stream.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
    signal.signal(signal.SIGTERM, _interrupt_once)
    code, notes = 0, Notes(Path(os.environ[NOTES]))
    try:
        with no_collections():
            from dpdemo.epochs.ddp.rank import run_rank
        world = launched_world()
        assert world is not None  # noqa: S101 - the launcher sets the environment
        run_rank(Job.from_text(sys.argv[1]), world, notes.write)
    except KeyboardInterrupt:
        code = 130
    except DpdemoError as error:
        code = error.exit_code
        note(notes, error)
    exit_at_once(code)


def note(notes: Notes, error: DpdemoError) -> None:
    """Tell the launcher how this rank failed."""
    hints = (error.raw_hint,) if error.raw_hint else ()
    is_lost, is_usage = isinstance(error, PeerLostError), isinstance(error, UsageError)
    notes.write(Refusal(error.message, error.key, is_lost, hints, time.time(), is_usage=is_usage))


def _interrupt_once(number: int, frame: FrameType | None) -> None:
    del number, frame
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher repeats it while we write down what we saw
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()

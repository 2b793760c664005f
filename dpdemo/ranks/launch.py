"""Plain processes as the ranks of one program, and a watcher who tells who waits for whom.

Each rank gets torchrun's variables (RANK, WORLD_SIZE, MASTER_ADDR, …) and nothing of torchelastic, whose own
store hangs programs that have a port of their own. Before each collective a rank appends a line to a file
(`log.py`). All are stopped once there is a verdict on them (`watch.py`).
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dpdemo.errors import RunError
from dpdemo.ranks.log import FOLDER, NOTES, RankLog
from dpdemo.ranks.watch import LAST_WORDS_S, LaunchedWorld, Verdict, watch

PORTS = range(20_000, 29_500)
_POLL_S = 0.05
_CLEAN_UP_S = 3.0  # time that ranks get to clean up and write their notes after Ctrl-C
_whole_lines = threading.Lock()


class Rank(RankLog):
    """A rank, its process, and the threads that print what it writes."""

    def __init__(self, number: int, folder: Path, process: subprocess.Popen[bytes]) -> None:
        super().__init__(number, folder / f"{process.pid}.jsonl")
        self.process = process
        self.pumps: list[threading.Thread] = []

    def look(self) -> None:
        """Notice whether it has ended, and read what it noted."""
        self.code = self.process.poll()
        if self.code is not None:
            self.ended_at = min(self.ended_at, time.time())
        self.read()

    def send(self, number: int) -> None:
        """Send a signal to it, and to the processes that it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(self.process.pid) == self.process.pid:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)


@dataclass(frozen=True)
class Outcome(Verdict):
    """The end of all ranks, and the signal by which the user stopped them, if one did."""

    ranks: Sequence[Rank] = ()
    stopped_by: signal.Signals | None = None

    @property
    def are_stuck(self) -> bool:
        """Return whether the ranks were stopped because they can never continue."""
        return bool(self.message) and not self.failures and self.stopped_by is None


def launch(
    num_ranks: int,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    has_terminal: bool = True,
    on_look: Callable[[Sequence[Rank]], None] = lambda _: None,
) -> Outcome:
    """Run `command` as that many ranks, to the end of all of them.

    Args:
        num_ranks: how many processes to start.
        command: what each of them runs.
        environment: the variables of each, to which RANK and the others are added.
        has_terminal: whether rank 0 may read the terminal and draw on it; if not, Ctrl-C reaches ranks as
            SIGTERM, which ends a Python that is just starting without a traceback.
        on_look: called with the ranks each time that the launcher has looked at them.

    """
    ranks: list[Rank] = []

    world, stopped_by = LaunchedWorld(), None

    def look() -> list[tuple[str, Verdict | None]]:
        for rank in ranks:
            rank.look()
        on_look(ranks)
        return [("all", world.judge(ranks))]

    prefix = f"{FOLDER}{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        try:
            with _signals_raise():
                port = free_port()
                for number in range(num_ranks):
                    added = {**environment, **environment_of(number, num_ranks, port), NOTES: folder}
                    process = _start(command, added, has_terminal=has_terminal and not number)
                    ranks.append(Rank(number, Path(folder), process))
                    ranks[-1].pumps = _pumps(number, process)
                verdict = next(watch(look, _POLL_S))[1]
        except _StopSignal as stopped:
            stopped_by = stopped.by
            verdict = _interrupted(ranks, stopped.by, stopped.by if has_terminal else signal.SIGTERM)
        finally:
            stop(ranks)
        for rank in ranks:
            for pump in rank.pumps:
                pump.join(timeout=2)  # a grandchild may hold the pipe open
            rank.look()
        _print_tracebacks(verdict.failures)
    return Outcome(**vars(verdict), ranks=ranks, stopped_by=stopped_by)


def environment_of(number: int, num_ranks: int, port: int) -> dict[str, str]:
    """Return the variables that torchrun would set for a rank of one machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = str(max(1, cores // num_ranks))
    return {
        **dict.fromkeys(("RANK", "LOCAL_RANK", "ROLE_RANK"), str(number)),
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"), str(num_ranks)),
        **dict.fromkeys(("GROUP_RANK", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"), "0"),
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "TORCHELASTIC_RUN_ID": "none",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads),
    }


def free_port() -> int:
    """Return a port on which ranks can meet, below those that systems hand out to whoever asks for any.

    Of those, each connection of a busy machine may take the one found before rank 0 listens on it.
    """
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("", port))
            return port
    raise RunError(f"expected a free port, got {len(PORTS):,} in use", place=f"{PORTS[0]}-{PORTS[-1]}")


def _start(
    command: Sequence[str], environment: Mapping[str, str], *, has_terminal: bool
) -> subprocess.Popen[bytes]:
    """Start a rank in a process group of its own, so that its children can be stopped with it.

    On a terminal, rank 0 of a program shares the launcher's group: only the foreground group may read.
    """
    own_group = None if has_terminal and sys.stdin is not None and sys.stdin.isatty() else 0
    streams: dict[str, Any] = {} if has_terminal else {"stdin": subprocess.DEVNULL}
    for name, ours in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        if not (has_terminal and ours.isatty()):  # on a terminal rank 0 may draw bars and ask questions
            streams[name] = subprocess.PIPE
    return subprocess.Popen(command, env=dict(environment), process_group=own_group, **streams)  # noqa: S603 - the user's


def _pumps(number: int, process: subprocess.Popen[bytes]) -> list[threading.Thread]:
    """Start threads that print the whole lines of a rank, those of rank 1 and on with their number."""
    pairs = [(process.stdout, sys.stdout), (process.stderr, sys.stderr)]
    prefix = f"[{number}] " if number else ""
    threads = [
        threading.Thread(target=_pump, args=(prefix, source, target), daemon=True)
        for source, target in pairs
        if source is not None
    ]
    for thread in threads:
        thread.start()
    return threads


def _pump(prefix: str, source: IO[bytes], target: IO[str]) -> None:
    with source:
        for line in source:
            text = line.decode(errors="replace").removesuffix("\n")
            with _whole_lines, contextlib.suppress(OSError, ValueError):  # nobody reads, or a full disk
                target.write(f"{prefix}{text}\n")
                target.flush()


class _StopSignal(BaseException):
    """Raised by Ctrl-C, SIGTERM or SIGHUP in the launcher."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.by = signal.Signals(number)


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """Raise `_Stopped` on the first Ctrl-C, SIGTERM or SIGHUP, and ignore those that follow."""

    def stop_once(number: int, _: object) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise _StopSignal(number)

    is_main = threading.current_thread() is threading.main_thread()  # Python hears signals in this one alone
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if is_main else ()
    before = {number: signal.getsignal(number) for number in numbers}
    for number in before:
        signal.signal(number, stop_once)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupted(ranks: Sequence[Rank], by: signal.Signals, passed_on: signal.Signals) -> Verdict:
    """Report where each rank was when the user stopped them, and wait for their clean-up."""
    for rank in ranks:
        rank.look()
    where = [f"  {rank.whereabouts()}" for rank in ranks if rank.code is None and rank.last]
    for rank in ranks:
        rank.send(passed_on)
    deadline = time.monotonic() + _CLEAN_UP_S
    while time.monotonic() < deadline and any(rank.process.poll() is None for rank in ranks):
        time.sleep(_POLL_S)
    return Verdict(128 + by, (f"{by.name}: all ranks were stopped", *where))


def stop(ranks: Sequence[Rank]) -> None:
    """End all ranks, and the processes that they have started."""
    for rank in ranks:
        if rank.process.poll() is None:
            rank.send(signal.SIGTERM)
    deadline = time.monotonic() + LAST_WORDS_S
    for rank in ranks:
        with contextlib.suppress(subprocess.TimeoutExpired):
            rank.process.wait(max(0.0, deadline - time.monotonic()))
        rank.send(signal.SIGKILL)
        rank.process.wait()


def _print_tracebacks(ranks: Sequence[RankLog]) -> None:
    """Print the tracebacks that ranks left to the launcher; of one error on several ranks the first."""
    shown: set[str] = set()
    for rank in ranks:
        error = rank.error
        if error is not None and error.traceback is not None and error.text not in shown:
            shown.add(error.text)
            prefix = f"[{rank.number}] " if rank.number else ""
            sys.stderr.writelines(f"{prefix}{line}\n" for line in error.traceback.splitlines())

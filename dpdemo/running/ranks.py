"""Plain processes as the ranks of one program, and a watcher who tells who waits for whom.

Each rank gets torchrun's variables (RANK, WORLD_SIZE, MASTER_ADDR, …) and nothing of torchelastic, whose own
store hangs programs that have a port of their own. Before each collective a rank appends a line to a file
(`ranklog.py`). Ranks that can never go on (`rankwatch.py`) are named at once, and all are stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from dpdemo.running.ranklog import RankLog
from dpdemo.running.rankwatch import failure, first_failure, is_consequence, mismatch, stuck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

NOTES = "DPDEMO_RANK_NOTES"
"""The variable with the folder in which ranks note what they do."""
FOLDER = "dpdemo-ranks-"
"""Beginning of that folder's name; the process that reads the notes, or outlives their reader, follows."""
_POLL_S = 0.05
_LAST_WORDS_S = 0.5
_CLEAN_UP_S = 3.0
"""Time that ranks get to clean up and write their notes after Ctrl-C."""
_LOST_S = 2.0
"""Seconds that a rank which raised an error gets to end, and that a lost connection waits for its cause."""
_whole_lines = threading.Lock()


@dataclass(eq=False)
class Rank:
    """One process, and what it has noted."""

    number: int
    process: subprocess.Popen[bytes]
    log: RankLog
    ended_at: float = 0.0

    @property
    def code(self) -> int | None:
        """The exit code, or None while it runs."""
        code = self.process.poll()
        if code is not None and not self.ended_at:
            self.ended_at = time.time()
        return code


@dataclass(frozen=True)
class Verdict:
    """The end of all ranks: the exit code, a message, and the ranks whose tracebacks to show."""

    code: int
    message: tuple[str, ...] = ()
    failures: tuple[RankLog, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The end of all ranks: the exit code, a message, and what each rank did."""

    code: int
    message: tuple[str, ...]
    logs: tuple[RankLog, ...]
    codes: tuple[int, ...]
    first_failed: int | None = None
    stopped_by: signal.Signals | None = None


def launch(
    num_ranks: int,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    has_terminal: bool = True,
    on_look: Callable[[], None] = lambda: None,
) -> Outcome:
    """Run `command` as that many ranks, to the end of all of them.

    Args:
        num_ranks: how many processes to start.
        command: what each of them runs.
        environment: the variables of each, to which RANK and the others are added.
        has_terminal: whether rank 0 may read the terminal and draw on it; if not, Ctrl-C reaches ranks as
            SIGTERM, which ends a Python that is just starting without a traceback.
        on_look: called each time that the launcher looks at the ranks.

    """
    ranks: list[Rank] = []
    pumps: list[threading.Thread] = []
    stopped_by = None
    with tempfile.TemporaryDirectory(prefix=f"{FOLDER}{os.getpid()}-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        try:
            with _signals_raise():
                port = _free_port()
                for number in range(num_ranks):
                    added = environment_of(number, num_ranks, port) | {NOTES: name}
                    process = _start(
                        command, {**environment, **added}, has_terminal=has_terminal and not number
                    )
                    ranks.append(Rank(number, process, RankLog(number, folder / f"{process.pid}.jsonl")))
                    pumps += _pumps(number, process)
                verdict = _watch(ranks, on_look)
        except _Stopped as stopped:
            stopped_by = signal.Signals(stopped.number)
            passed_on = stopped_by if has_terminal else signal.SIGTERM
            verdict = Verdict(128 + stopped_by, _interrupted(ranks, stopped_by, passed_on))
        finally:
            stop(ranks)
        for pump in pumps:
            pump.join(timeout=2)  # a grandchild may hold the pipe open
        for rank in ranks:
            rank.log.read()
        _print_tracebacks(verdict.failures)
    codes = tuple(1 if rank.log.error else rank.code or 0 for rank in ranks)
    logs = tuple(rank.log for rank in ranks)
    first = verdict.failures[0].number if verdict.failures else None
    return Outcome(verdict.code, verdict.message, logs, codes, first, stopped_by)


def environment_of(number: int, num_ranks: int, port: int) -> dict[str, str]:
    """Return the variables that torchrun would set for a rank of one machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = str(max(1, cores // num_ranks))
    return {
        "RANK": str(number),
        "LOCAL_RANK": str(number),
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_WORLD_SIZE": str(num_ranks),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "ROLE_RANK": str(number),
        "ROLE_WORLD_SIZE": str(num_ranks),
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads),
    }


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


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
            with (
                _whole_lines,
                contextlib.suppress(OSError, ValueError),
            ):  # nobody reads it, or the disk is full
                target.write(f"{prefix}{text}\n")
                target.flush()


class _Stopped(BaseException):
    """Raised by Ctrl-C, SIGTERM or SIGHUP in the launcher."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """Raise `_Stopped` on the first Ctrl-C, SIGTERM or SIGHUP, and ignore those that follow."""

    def stop_once(number: int, _: object) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise _Stopped(number)

    if (
        threading.current_thread() is not threading.main_thread()
    ):  # Python hears signals in the main one alone
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number in before:
        signal.signal(number, stop_once)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupted(ranks: Sequence[Rank], by: signal.Signals, passed_on: signal.Signals) -> tuple[str, ...]:
    """Report where each rank was when the user stopped them, and wait for their clean-up."""
    for rank in ranks:
        rank.log.read()
    where = [f"  {rank.log.whereabouts()}" for rank in ranks if rank.code is None and rank.log.last]
    for rank in ranks:
        _send(rank, passed_on)
    deadline = time.monotonic() + _CLEAN_UP_S
    while time.monotonic() < deadline and any(rank.code is None for rank in ranks):
        time.sleep(_POLL_S)
    return (f"{by.name}: all ranks were stopped", *where)


def _send(rank: Rank, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(rank.process.pid) == rank.process.pid:
            os.killpg(rank.process.pid, number)
        else:
            rank.process.send_signal(number)


def stop(ranks: Sequence[Rank]) -> None:
    """End all ranks, and the processes that they have started."""
    for rank in ranks:
        if rank.code is None:
            _send(rank, signal.SIGTERM)
    deadline = time.monotonic() + _LAST_WORDS_S
    for rank in ranks:
        with contextlib.suppress(subprocess.TimeoutExpired):
            rank.process.wait(max(0.0, deadline - time.monotonic()))
        _send(rank, signal.SIGKILL)
        rank.process.wait()


def _watch(ranks: list[Rank], on_look: Callable[[], None]) -> Verdict:
    """Wait until all ranks have ended, or until one can never go on."""
    logs = [rank.log for rank in ranks]
    while True:
        codes = [rank.code for rank in ranks]
        for log in logs:
            log.read()
        on_look()
        if any(codes) or any(log.error for log in logs):
            return _failed(ranks)
        ended = {rank.number for rank, code in zip(ranks, codes, strict=True) if code == 0}
        is_known = not any(log.is_broken for log in logs)
        message = (mismatch(logs) or stuck(logs, ended)) if is_known else ()
        if message:
            return Verdict(1, message)
        if len(ended) == len(ranks):
            return Verdict(0)
        time.sleep(_POLL_S)


def _failed(ranks: Sequence[Rank]) -> Verdict:
    """Wait a moment for the other ranks, then name the rank that failed first and where the others waited."""
    logs = [rank.log for rank in ranks]
    begun = time.monotonic()
    while True:
        codes = [rank.code for rank in ranks]
        for log in logs:
            log.read()
        failed = {
            rank.number: rank.ended_at or time.time()
            for rank, code in zip(ranks, codes, strict=True)
            if code or (code is None and rank.log.error)
        }
        first = first_failure(logs, failed)
        waited = time.monotonic() - begun
        message = () if any(log.is_broken for log in logs) else mismatch(logs)
        if message:  # gloo ends a process that gets more than it expects
            return Verdict(1, message)
        has_ended = first is not None and codes[first.number] is not None
        if None not in codes or waited > (_LAST_WORDS_S if has_ended else _LOST_S):
            break
        time.sleep(_POLL_S)
    ended = {
        rank.number
        for rank, code in zip(ranks, codes, strict=True)
        if code == 0 or (code is None and rank.log.end and rank.number not in failed)  # it takes its time
    }
    how = {number: _how(codes[number] or 1) for number in failed}
    first, message = failure(logs, failed, ended, how)
    if first is None:
        return Verdict(1, message)
    code = codes[first.number] or 1
    first_failures = [log for log in logs if log.number in failed and not is_consequence(log.error)]
    return Verdict(128 - code if code < 0 else code, message, tuple(dict.fromkeys([first, *first_failures])))


def _how(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"


def _print_tracebacks(logs: Sequence[RankLog]) -> None:
    """Print the tracebacks that ranks left to the launcher; of one error on several ranks the first."""
    shown: set[str] = set()
    for log in logs:
        error = log.error or {}
        if "traceback" in error and error["text"] not in shown:
            shown.add(error["text"])
            prefix = f"[{log.number}] " if log.number else ""
            sys.stderr.writelines(f"{prefix}{line}\n" for line in error["traceback"].splitlines())

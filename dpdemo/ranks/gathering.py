"""Ranks that a program starts by itself inside `dpdemo exec`: watched, and reported at its end.

mp.spawn, torchrun, accelerate and notebook launchers start processes that note what they do (`rank/`) in the
folder of the `exec` that they descend from. Where torchrun starts `dpdemo exec` itself, its processes share a
folder, and rank 0 is the one that watches and reports. Ranks of one world have the same id.
"""

import _thread
import contextlib
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dpdemo.ranks.deadlocks import NONE_LEFT, NOT_STARTED, never_joined
from dpdemo.ranks.log import FOLDER, NOTES, RankLog
from dpdemo.ranks.processes import forked_by, has_reader, is_alive, may_become_ranks
from dpdemo.ranks.report import Program, summary
from dpdemo.ranks.watch import Verdict, blocked, closed, watch
from dpdemo.results.ranks import Comparison, RanksResult

OnStuck = Callable[[tuple[str, ...]], object]
"""Called with the lines that say why the ranks of a world can never go on."""
CompareRanks = Callable[[Verdict, Sequence[RankLog]], Comparison]
_POLL_S = 0.1
_JOINING = "joining"  # name of the world of ranks that wait for one that never joins
_START_S = 3.0  # time for the rest of a launcher's work, before ranks without a process here are named
_PATIENCE_S = 5.0  # time to wait for the last notes of ranks after the program has ended


class RankFolder:
    """The ranks that have noted something in a folder."""

    def __init__(self, folder: Path, *, is_reporter: bool, is_one_of_ranks: bool = False) -> None:
        self.folder, self.is_reporter, self.is_one_of_ranks = folder, is_reporter, is_one_of_ranks
        self.logs: dict[Path, RankLog] = {}
        self.problems: dict[str, tuple[str, ...]] = {}
        self.is_over = self.is_closing = self.has_noted = False
        self.missing_since: float | None = None

    def read(self) -> None:
        """Read what all processes have noted since the last time."""
        known = {path.with_suffix(".jsonl") for path in self.folder.glob("*")}  # none before the first note
        for log in [self.logs.setdefault(path, RankLog(-1, path)) for path in sorted(known)]:
            if log.code is None:
                has_ended = not is_alive(_process(log))
                log.read()
                if has_ended:
                    _settle(log)

    def worlds(self) -> Iterator[tuple[str, list[RankLog]]]:
        """Yield the ranks of each world of several, with its id."""
        found: dict[str, list[RankLog]] = {}
        for log in self.logs.values():
            if log.world is not None and log.world[1] > 1:
                found.setdefault(log.world_id, []).append(log)
            elif log.world is None and self.problems.get(_JOINING):
                found.setdefault(_JOINING, []).append(log)
        yield from ((name, sorted(logs, key=lambda log: log.number)) for name, logs in found.items())

    def start(self, on_stuck: OnStuck, *, ends_process: bool = True) -> None:
        """Start watching: ranks that can never continue are ended after `on_stuck` got the reason.

        With `ends_process` this process ends too, before its launcher reports that ranks are gone.
        """
        if self.is_reporter:  # threading's own would see the GPUs
            _thread.start_new_thread(self._watch, (on_stuck, ends_process))
        if self.is_reporter and self.is_one_of_ranks:
            self._report_before_sigterm(on_stuck)

    def _report_before_sigterm(self, finish: OnStuck) -> None:
        """Report before torchrun ends this rank, as it does once another one has failed."""
        process = os.getpid()

        def report(number: int, _: object) -> None:
            if os.getpid() == process and self.is_closing:
                return  # the report is being made
            if os.getpid() == process:  # and no child, which has the handler too
                with contextlib.suppress(Exception):
                    finish(())
                shutil.rmtree(self.folder, ignore_errors=True)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, report)

    def _watch(self, on_stuck: OnStuck, ends_process: bool) -> None:
        for name, verdict in watch(self._look, _POLL_S):
            logs = self._waiting() if name == _JOINING else dict(self.worlds())[name]
            self.problems[name] = verdict.message
            with contextlib.suppress(Exception):
                on_stuck(verdict.message)
            self._end(logs, ends_process=ends_process)

    def _look(self) -> list[tuple[str, Verdict | None]] | None:
        """Judge each world; None once nobody asks any more."""
        if self.is_over:
            return None
        with contextlib.suppress(Exception):
            self.read()
            worlds = [world for world in self.worlds() if world[0] not in self.problems]
            found = [(name, _judged(logs)) for name, logs in worlds]
            return [*found, (_JOINING, self._never_joined())]
        return []

    def _waiting(self) -> list[RankLog]:
        """Return the ranks that wait for others to join."""
        return [log for log in self.logs.values() if log.joining and log.waiting and log.code is None]

    def _never_joined(self) -> Verdict | None:
        """Return for which ranks others wait in vain, once no process is left that could become one."""
        waiting = self._waiting()
        others = may_become_ranks() if waiting and not self.is_one_of_ranks else None
        if others is None or others - set(map(_process, waiting)):
            self.missing_since = None
            return None
        size = max(log.joining[1] for log in waiting if log.joining)
        known = {log.number for log in self.logs.values()}
        if self._num_candidates() >= size:
            lines = never_joined(waiting, known, NONE_LEFT)
            return Verdict(1, lines) if lines else None
        # of fewer processes than ranks, the others are started elsewhere, or by mistake nowhere
        self._note_missing(never_joined(waiting, known, NOT_STARTED))
        return None

    def _note_missing(self, lines: Sequence[str]) -> None:
        """Write which ranks are missing, once that has lasted."""
        now = time.monotonic()
        self.missing_since = self.missing_since or now
        if now - self.missing_since > _START_S and not self.has_noted:
            self.has_noted = True
            print("note: " + "\n".join(lines), file=sys.__stderr__, flush=True)

    def _num_candidates(self) -> int:
        """Count the processes of this program that noted something, or that it forked."""
        pid = os.getpid()
        return max(len(self.logs), forked_by(pid) + (pid in map(_process, self.logs.values())))

    def _end(self, logs: Sequence[RankLog], *, ends_process: bool) -> None:
        """End the ranks of a world."""
        for log in logs:
            with contextlib.suppress(OSError):
                if _process(log) != os.getpid():
                    os.kill(_process(log), signal.SIGKILL)
        if not ends_process:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(Exception):
            sys.stdout.flush()  # what the program printed so far
        os._exit(1)

    def close(self, program: Program, against_one: CompareRanks | None = None) -> tuple[RanksResult, ...]:
        """Stop watching, and return what the ranks of each world did; another rank may be the reporter.

        If there is one world, `against_one` compares its ranks with one process.
        """
        if not self.is_reporter:
            return ()
        self.is_closing = True
        deadline = time.monotonic() + (0 if self.problems else _PATIENCE_S)
        self.read()
        while time.monotonic() < deadline and any(
            log.world is not None and log.end is None and log.code is None for log in self.logs.values()
        ):
            time.sleep(_POLL_S)
            self.read()
        self.is_over = True
        for log in self.logs.values():
            _settle(log)
        ended = [(logs, self.problems.get(name) or closed(logs)) for name, logs in self.worlds()]
        results = tuple(summary(program, logs, problem, are_stuck=bool(problem)) for logs, problem in ended)
        if against_one is None or len(ended) != 1 or self.is_one_of_ranks:
            return results
        ((logs, problem),) = ended
        return (replace(results[0], comparison=against_one(Verdict(0, problem), logs)),)


def _process(log: RankLog) -> int:
    return int(log.path.stem)


def _judged(logs: Sequence[RankLog]) -> Verdict | None:
    """Judge a world whose ranks have all joined. If one has failed, the program's launcher stops the rest."""
    is_whole = len(logs) == (logs[0].world or (0, 0))[1]
    return blocked(logs) if is_whole and not any(log.code for log in logs) else None


def _settle(log: RankLog) -> None:
    """Note that a rank has ended, or is out of time: a right one says so itself (`end`)."""
    if log.code is None:
        log.code, log.ended_at = int(log.end is None or log.error is not None), time.time()


@contextlib.contextmanager
def gathering() -> Iterator[RankFolder | None]:
    """Record what this process and its children do as ranks, while a `with` block is open.

    The folder is made by the first note: a program without ranks leaves none behind, however it ends. None
    where an `exec` above this one reads the notes.
    """
    if has_reader(os.environ.get(NOTES)):
        yield None
        return
    is_rank = {"RANK", "WORLD_SIZE", "MASTER_PORT"} <= set(os.environ)
    try:
        name = f"{FOLDER}{os.getpid()}-{secrets.token_hex(8)}"
        folder = _shared_folder() if is_rank else Path(tempfile.gettempdir()) / name
    except OSError:  # a full disk
        yield None
        return
    os.environ[NOTES] = str(folder)
    try:
        is_reporter = not is_rank or os.environ.get("LOCAL_RANK", os.environ["RANK"]) == "0"
        found = RankFolder(folder, is_reporter=is_reporter, is_one_of_ranks=is_rank)
        yield found
        found.is_over = True
        if is_reporter:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.environ.pop(NOTES, None)


def _shared_folder() -> Path:
    """Make the folder that all processes of a launcher on this machine find."""
    name = f"{FOLDER}{os.getppid()}-{os.getuid()}-{os.environ['MASTER_PORT']}"
    folder = Path(tempfile.gettempdir()) / name
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(folder)
    return folder

"""Plain processes as the ranks of one program, and a watcher who tells who waits for whom.

Each rank gets torchrun's variables (RANK, WORLD_SIZE, MASTER_ADDR, …) and nothing of torchelastic, whose own
store hangs programs that have a port of their own. Before each collective a rank appends a line to a file
(`executing/ranknotes.py`). Two ranks whose n-th collectives of a group differ, or a rank that waits for one
that has ended, can never go on: the watcher says so at once and stops all ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NOTES = "DPDEMO_RANK_NOTES"
"""The folder in which ranks note what they do."""
_POLL_S = 0.05
_LAST_WORDS_S = 0.5
_SAME_SHAPE = {"allreduce_", "broadcast_", "reduce_", "_allgather_base_", "_reduce_scatter_base_"}
_whole_lines = threading.Lock()
_BETWEEN_TWO = {"send", "recv_", "recv_any_source_"}


@dataclass(eq=False)
class Rank:
    """One process, and the collectives that it has noted."""

    number: int
    process: subprocess.Popen[bytes]
    notes: Path
    collectives: list[dict[str, Any]] = field(default_factory=list)
    by_group: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Those of each group; those between two ranks have no common order and are left out."""
    num_read: int = 0

    @property
    def code(self) -> int | None:
        """The exit code, or None while it runs."""
        return self.process.poll()

    def read(self) -> None:
        """Read what was noted since the last time."""
        with contextlib.suppress(FileNotFoundError), self.notes.open("rb") as file:
            file.seek(self.num_read)
            text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self.num_read += len(whole)
            found = [json.loads(line) for line in whole.splitlines()]
            self.collectives += found
            for one in found:
                if one["op"] not in _BETWEEN_TWO:
                    self.by_group.setdefault(one["group"], []).append(one)

    def describe(self, collective: dict[str, Any] | None = None) -> str:
        """Name a collective, the last one by default, with its line."""
        one = collective or (self.collectives[-1] if self.collectives else None)
        if one is None:
            return f"rank {self.number} had begun no collective"
        shapes = ", ".join(map(str, one["shapes"][:3])) + (", …" if len(one["shapes"]) > 3 else "")
        name = one["op"].strip("_")
        return f"rank {self.number}: {name} #{one['n']}{f' of {shapes}' if shapes else ''} at {one['at']}"


@dataclass(frozen=True)
class Outcome:
    """How the ranks ended: the exit code, what to say about it, and what each rank did."""

    code: int
    message: tuple[str, ...]
    ranks: tuple[Rank, ...]
    ended: tuple[dict[str, Any], ...]
    """What each rank wrote down when it ended; empty if it could not."""


def launch(num_ranks: int, command: Sequence[str], environment: Mapping[str, str]) -> Outcome:
    """Run `command` as that many ranks, to the end of all of them."""
    with tempfile.TemporaryDirectory(prefix="dpdemo-ranks-") as folder:
        ranks: list[Rank] = []
        pumps: list[threading.Thread] = []
        with _signals_passed_on(ranks):
            try:
                port = _free_port()
                for number in range(num_ranks):
                    added = environment_of(number, num_ranks, port) | {NOTES: folder}
                    process = _start(number, command, {**environment, **added})
                    ranks.append(Rank(number, process, Path(folder) / f"{number}.jsonl"))
                    pumps += _pumps(number, process)
                code, message = _watch(ranks)
            finally:
                stop(ranks)
            for pump in pumps:
                pump.join(timeout=2)  # a grandchild may hold the pipe open
            for rank in ranks:
                rank.read()
            ended = tuple(_ended(Path(folder) / f"{rank.number}.json") for rank in ranks)
        return Outcome(code, message, tuple(ranks), ended)


def environment_of(number: int, num_ranks: int, port: int) -> dict[str, str]:
    """Return the variables that torchrun would set for a rank of one machine."""
    threads = str(max(1, (os.cpu_count() or 1) // num_ranks))
    return {
        "RANK": str(number),
        "LOCAL_RANK": str(number),
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_WORLD_SIZE": str(num_ranks),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", threads),
    }


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _start(number: int, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a rank in a process group of its own, so that its children can be stopped with it."""
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL} if number else {}
    for name, ours in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        if number or not ours.isatty():  # on a terminal rank 0 may draw bars and ask questions
            streams[name] = subprocess.PIPE
    return subprocess.Popen(command, env=dict(environment), process_group=0, **streams)  # noqa: S603 - the user's


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
    for line in source:
        text = line.decode(errors="replace").removesuffix("\n")
        with _whole_lines, contextlib.suppress(BrokenPipeError, ValueError):
            target.write(f"{prefix}{text}\n")
            target.flush()


@contextlib.contextmanager
def _signals_passed_on(ranks: list[Rank]) -> Iterator[None]:
    """Hand Ctrl-C and SIGTERM to all ranks, and then end as interrupted."""

    def pass_on(number: int, _: object) -> None:
        for rank in ranks:
            _send(rank, number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _send(rank: Rank, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(rank.process.pid, number)


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


def _watch(ranks: list[Rank]) -> tuple[int, tuple[str, ...]]:
    """Wait until all ranks have ended, or until one can never go on."""
    compared: dict[str, int] = {}
    while True:
        codes = [rank.code for rank in ranks]
        for rank in ranks:
            rank.read()
        failed = next((rank for rank, code in zip(ranks, codes, strict=True) if code), None)
        if failed is not None:
            return _failed(failed, ranks)
        message = mismatch(ranks, compared) or ended_early(ranks, codes)
        if message:
            return 1, message
        if all(code == 0 for code in codes):
            return 0, ()
        time.sleep(_POLL_S)


def _failed(failed: Rank, ranks: list[Rank]) -> tuple[int, tuple[str, ...]]:
    """Give the other ranks a moment, then name who failed first and where the others waited."""
    deadline = time.monotonic() + _LAST_WORDS_S
    while time.monotonic() < deadline and any(rank.code is None for rank in ranks):
        time.sleep(_POLL_S)
    for rank in ranks:
        rank.read()
    others = [rank.describe() for rank in ranks if rank is not failed and rank.code != 0]
    code = failed.code or 1
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed with exit code {code}"
    where = [f"  {text}" for text in others]
    if where:
        where.insert(0, "The others were in:")
    message = f"rank {failed.number} {how}; all ranks were stopped"
    return (128 - code if code < 0 else code), (message, *where)


def mismatch(ranks: Sequence[Rank], compared: dict[str, int]) -> tuple[str, ...]:
    """Name the first collective of a group that differs between its ranks.

    `compared` says how many of each group were compared already.
    """
    for group in sorted({group for rank in ranks for group in rank.by_group}):
        members = {rank: rank.by_group[group] for rank in ranks if group in rank.by_group}
        common = min(map(len, members.values())) if len(members) > 1 else 0
        for at in range(compared.get(group, 0), common):
            row = [made[at] for made in members.values()]
            kinds = {(one["op"], str(one["shapes"]) if one["op"] in _SAME_SHAPE else "") for one in row}
            if len(kinds) > 1:
                lines = [f"  {rank.describe(one)}" for rank, one in zip(members, row, strict=True)]
                return (
                    "The ranks are not in the same collective; NCCL would hang or mix up their numbers:",
                    *lines,
                )
            compared[group] = at + 1
    return ()


def ended_early(ranks: Sequence[Rank], codes: Sequence[int | None]) -> tuple[str, ...]:
    """Name a rank that waits in a collective for one that has ended."""
    for gone, code in zip(ranks, codes, strict=True):
        if code != 0:
            continue
        for rank in ranks:
            for group, there in gone.by_group.items():
                made = rank.by_group.get(group, [])
                if rank.code is None and len(made) > len(there):
                    return (
                        f"rank {rank.number} waits for rank {gone.number}, which has ended:",
                        f"  {rank.describe(made[len(there)])}",
                        f"  {gone.describe(there[-1])} was its last",
                    )
    return ()


def _ended(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found

"""The watcher of ranks, whoever started them: it judges worlds of ranks by their logs until each has ended.

Ranks that can never continue (`deadlocks.py`) are named at once, ranks that failed once the others had a
moment to note why. Where the program's own launcher stops those, they are named when the program has ended.
"""

import functools
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dpdemo.ranks.deadlocks import failure, first_failure, left_alone, mismatch, stuck
from dpdemo.ranks.log import RankLog

LAST_WORDS_S = 0.5
_LOST_S = 2.0
"""Seconds that a rank which raised an error gets to end, and that a lost connection waits for its cause."""


@dataclass(frozen=True)
class Verdict:
    """The end of a world: the exit code, the reason, and the ranks that failed by themselves, in order."""

    code: int = 0
    message: tuple[str, ...] = ()
    failures: tuple[RankLog, ...] = ()


Find = Callable[[Sequence[RankLog]], tuple[str, ...]]
Look = Callable[[], Iterable[tuple[str, Verdict | None]] | None]
"""Returns the verdict on each world, by name, or None once nobody asks any more."""


def watch(look: Look, pause: float) -> Iterator[tuple[str, Verdict]]:
    """Look at worlds again and again, and yield the verdicts."""
    while (found := look()) is not None:
        yield from ((name, verdict) for name, verdict in found if verdict is not None)
        time.sleep(pause)


def blocked(ranks: Sequence[RankLog]) -> Verdict | None:
    """Return why ranks can never continue, if that is known."""
    has_failed = any(rank.has_failed for rank in ranks)  # gloo ends a process that gets more than it expects
    for find in (mismatch,) if has_failed else (mismatch, stuck):
        if message := _guarded(find, ranks):
            return Verdict(1, message)
    return None


def _guarded(find: Find, ranks: Sequence[RankLog]) -> tuple[str, ...]:
    """Look for a reason; where notes are missing, or the search has a bug, the ranks continue."""
    if any(rank.is_broken for rank in ranks):
        return ()
    try:
        return find(ranks)
    except Exception as error:  # noqa: BLE001 - a bug here costs a line, not the program
        _note(f"`{find.__name__}` could not be judged: {type(error).__name__}: {error}")
        return ()


@functools.cache
def _note(bug: str) -> None:
    print(f"note: {bug}. This is a bug in dpdemo. Please report it.", file=sys.__stderr__, flush=True)


class LaunchedWorld:
    """A world of ranks that nobody else stops if one fails."""

    failing_since: float | None = None

    def judge(self, ranks: Sequence[RankLog]) -> Verdict | None:
        """Return why the ranks can never continue, which failed first, or that all have ended well."""
        verdict = blocked(ranks)
        if verdict is not None:
            return verdict
        if not any(rank.has_failed for rank in ranks):
            return _ended_well(ranks) if all(rank.code == 0 for rank in ranks) else None
        self.failing_since = self.failing_since or time.monotonic()
        first = first_failure(ranks)
        patience = _LOST_S if first is None or first.code is None else LAST_WORDS_S
        is_over = all(rank.code is not None for rank in ranks)
        return failed(ranks) if is_over or time.monotonic() - self.failing_since > patience else None


def _ended_well(ranks: Sequence[RankLog]) -> Verdict:
    message = _guarded(left_alone, ranks)
    return Verdict(int(bool(message)), message)


def failed(ranks: Sequence[RankLog]) -> Verdict:
    """Name the rank that failed first, and where the others waited."""
    first, message = failure(ranks)
    if first is None:
        return Verdict(1, message)
    code = first.code or 1
    others = [rank for rank in ranks if rank.has_failed and not rank.is_consequence and rank is not first]
    return Verdict(128 - code if code < 0 else code, message, (first, *others))


def closed(ranks: Sequence[RankLog]) -> tuple[str, ...]:
    """Return why a world whose program has ended failed, if it did."""
    if not any(rank.has_failed for rank in ranks):
        return _guarded(left_alone, ranks)
    return _guarded(mismatch, ranks) or failure(ranks, "ended before its time")[1]

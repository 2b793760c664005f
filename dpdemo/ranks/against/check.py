"""Run the program a second time, on one rank with the rows of all, and compare."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dpdemo.ranks.against.settings import Settings
from dpdemo.ranks.against.started import Alone, NotComparedError, run_alone
from dpdemo.ranks.against.state import owner_of
from dpdemo.ranks.against.store import Store
from dpdemo.ranks.events import (
    HOOK,
    Event,
    ModelMade,
    NotedBatch,
    NotedDraw,
    NotedFrozen,
    NotedPass,
    NotedStep,
    Parameters,
    Remark,
    Touched,
    Unsynced,
)
from dpdemo.ranks.launch import launch
from dpdemo.ranks.log import FOLDER
from dpdemo.ranks.mistakes import find_mistakes
from dpdemo.results.ranks import Comparison, Mistake

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dpdemo.ranks.against.compare import Side, Step
    from dpdemo.ranks.launch import Outcome
    from dpdemo.ranks.log import RankLog
    from dpdemo.ranks.watch import Verdict

_NOTED = (NotedBatch, NotedDraw, NotedFrozen, NotedPass, NotedStep, Touched)
_TIMES, _LEAST_S = 6.0, 120.0
"""The run on one rank may take so many times as long as that on all ranks."""
_NORMS = (
    "BatchNorm normalizes each rank's rows by themselves, one process all rows together; with each rank's "
    "statistics the gradients are equal"
)
_SYNC = "nn.SyncBatchNorm.convert_sync_batchnorm(model), unless that is meant"


@dataclass
class Check:
    """The comparison of one program: what its runs share."""

    settings: Settings
    command: Sequence[str]
    """It runs the program in one process, which is a rank or starts ranks itself."""
    environment: Mapping[str, str]
    folder: str = field(default_factory=os.getcwd)
    """The folder in which the program was started."""
    began: float = field(default_factory=time.monotonic)
    limit_s: float = _LEAST_S
    many: int = 1
    """The ranks that stand for one process: several where tensor parallelism does not run on one."""

    def on_ranks(self) -> Outcome:
        """Run the program on its ranks, which note what one process needs."""
        environment = {**self.environment, **self.settings.environment()}
        return launch(self.settings.num_ranks, self.command, environment)

    def against_one(self, outcome: Verdict, ranks: Sequence[RankLog]) -> Comparison:
        """Run the program on one rank, and compare the steps that all noted."""
        num = len(ranks)
        self.settings = replace(self.settings, num_ranks=num)
        self.limit_s = max(_LEAST_S, _TIMES * (time.monotonic() - self.began))
        if outcome.code or outcome.message:
            return Comparison("not checked", num, "the program did not come to its end on the ranks")
        reason = self._write_events(ranks)
        if reason:
            return Comparison("not checked", num, reason)
        try:
            return self._compared(ranks)
        except NotComparedError as error:
            return Comparison("not checked", num, str(error))
        except Exception as error:  # noqa: BLE001 - a bug here costs the comparison, not the report
            return Comparison("not checked", num, f"{type(error).__name__}: {error} (please report it)")

    def _write_events(self, logs: Sequence[RankLog]) -> str:
        """Write what the ranks noted for the one process; return why nothing can be compared."""
        dull = _dull_steps([_noted(log.events) for log in logs], self.settings.steps)
        for log in logs:
            for event in log.events:
                if isinstance(event, Remark) and event.is_fatal:
                    return event.text
            noted = [
                event.to_line()
                for event in log.events
                if isinstance(event, _NOTED)
                and not (isinstance(event, NotedStep) and (event.optimizer, event.step) in dull)
            ]
            self.settings.events(log.number).write_bytes(b"".join(noted))
            with contextlib.suppress(FileNotFoundError):
                self.settings.store_of(log.path.stem).rename(self.settings.store(log.number))
        if not _common([log.events for log in logs]):
            return "no step of an optimizer was seen on all ranks"
        return ""

    def _compared(self, logs: Sequence[RankLog]) -> Comparison:
        from dpdemo.ranks.against.judge import judged, reason_not_comparable

        settings, num = self.settings, self.settings.num_ranks
        steps, remarks = self._steps(logs, settings)
        if not steps or _are_shared_out(steps):
            turns = replace(settings, in_turns=True)
            by_turn, more = self._steps(logs, turns)
            if steps or _are_shared_out(by_turn):
                settings, steps, remarks = turns, by_turn, more
        if not steps:
            return Comparison("not checked", num, "; ".join(remarks) or "one process made no step")
        found = judged(steps, remarks)
        if found.verdict == "equal" or reason_not_comparable(steps):
            return found
        by_terms = self._by_terms(logs, settings, found, steps)
        return by_terms or self._by_noise(logs, settings, found, steps, remarks)

    def _by_noise(
        self,
        logs: Sequence[RankLog],
        settings: Settings,
        found: Comparison,
        steps: list[Step],
        remarks: Sequence[str],
    ) -> Comparison:
        """Run one rank with each rank's statistics of BatchNorm, and with parameters that are nudged."""
        from dpdemo.ranks.against.compare import EPSILON, noise_between
        from dpdemo.ranks.against.judge import judged

        whole, has_norms = steps, _have_norms(steps)
        if has_norms:
            settings = replace(settings, has_own_norms=True)
            own, _ = self._steps(logs, settings)
            has_norms, alone = bool(own), judged(own, remarks) if own else found
            if alone.verdict == "equal":
                return by_norms(alone, whole)
            if alone.verdict == "different":
                remark = "each rank's own statistics of BatchNorm are left out of the comparison"
                return replace(alone, remarks=(*alone.remarks, remark))
            steps = own or steps
        elif found.verdict == "different" and steps[0].dtype == "float32":
            return found
        nudged, _ = self._steps(logs, replace(settings, nudge=EPSILON[steps[0].dtype]))
        others = {(step.one.event.optimizer, step.number): step.one for step in nudged}
        keys = [(step.one.event.optimizer, step.number) for step in steps]
        steps = [
            replace(step, noise=noise_between(step, others[key]))
            for key, step in zip(keys, steps, strict=True)
            if key in others
        ]
        final = judged(steps, remarks) if steps else found
        return by_norms(final, whole) if has_norms and final.verdict == "equal" else final

    def _by_terms(
        self, logs: Sequence[RankLog], settings: Settings, found: Comparison, steps: Sequence[Step]
    ) -> Comparison | None:
        """Run one rank with the factors that the loss's terms have on the ranks, and see if they explain."""
        from dpdemo.ranks.against.judge import judged, with_divisor
        from dpdemo.ranks.against.terms import mistakes_of_terms, uneven_terms

        terms = uneven_terms(steps, by_rank=not found.mistakes)
        settings = replace(settings, has_own_norms=_have_norms(steps))
        scaled = self._steps(logs, replace(settings, terms=terms))[0] if terms else []
        if not scaled or (equal := judged(scaled, found.remarks)).verdict != "equal":
            return None
        mistakes = mistakes_of_terms(steps, terms)
        return _different(found, steps, mistakes) if mistakes else with_divisor(equal)

    def _steps(self, logs: Sequence[RankLog], settings: Settings) -> tuple[list[Step], list[str]]:
        """Run one rank, and return the steps that all made; remarks say what else the reader must know."""
        from dpdemo.ranks.against.compare import Side, Step

        outcome = self._replay(settings)
        joined = len(logs) // len({owner_of(log.number, log.events) for log in logs})
        if outcome.code and self.many < joined and not settings.by_program:
            self.many = joined
            outcome = self._replay(settings)
        where, remarks = "one process", []
        if self.many > 1:
            where = f"{self.many} ranks of tensor parallelism alone"
            remarks = [f"the program does not run on one process: {where} are compared in its place"]
        events = outcome.ranks[0].events
        fatal = [
            event.text
            for log in outcome.ranks
            for event in log.events
            if isinstance(event, Remark) and event.is_fatal
        ]
        failed = next((log.error for log in outcome.ranks if log.error), None)
        if fatal or outcome.code:
            at = f" ({failed.at})" if failed else ""
            text = (
                f"on {where} the program fails: {failed.text}{at}" if failed else f"the run on {where} failed"
            )
            return [], fatal or [text]
        keys = _common([*(log.events for log in logs), events])
        own = replace(settings, is_replay=True).store_of(outcome.ranks[0].path.stem)
        stores = [Store(settings.store(log.number)) for log in logs] + [Store(own)]

        def side(place: int, found: Sequence[Event], key: tuple[int, int]) -> Side:
            event = _noted(found)[key]
            return Side(event, stores[place].read(event.stored))

        found = find_mistakes({log.number: log.events for log in logs})
        is_wrapped = any("gradient was averaged" in each.text for each in found)
        kinds = {type(event) for event in logs[0].events}
        is_wrapped |= {ModelMade, Parameters} <= kinds or {ModelMade, Unsynced} <= kinds
        has_hook = any(isinstance(event, Remark) and event.text == HOOK for event in logs[0].events)
        steps = [
            Step(
                tuple(side(place, log.events, key) for place, log in enumerate(logs)),
                side(len(logs), events, key),
                is_wrapped=is_wrapped and not has_hook,
                has_hook=has_hook,
            )
            for key in keys
        ]
        return steps, [*remarks, *(event.text for event in events if isinstance(event, Remark))]

    def _replay(self, settings: Settings) -> Outcome | Alone:
        limit = time.monotonic() + self.limit_s

        def look(_: object = None) -> None:
            if time.monotonic() > limit:
                raise NotComparedError("the run on one process took too long")

        for path in Path(settings.folder).glob("one*.store"):
            path.unlink()
        environment = {**self.environment, **replace(settings, is_replay=True).environment()}
        if settings.by_program:
            return run_alone(self.command, environment, self.folder, look)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return launch(self.many, self.command, environment, has_terminal=False, on_look=look)


def _are_shared_out(steps: Sequence[Step]) -> bool:
    """Return whether one process makes the passes of all ranks, one after the other."""
    passes = {
        (len(step.data[0].detail.backward) * len(step.data), len(step.one.detail.backward)) for step in steps
    }
    return any(mine == single > 0 for mine, single in passes if len(steps[0].data) > 1)


def _have_norms(steps: Sequence[Step]) -> bool:
    return any(side.event.norms for step in steps for side in step.ranks)


def by_norms(alone: Comparison, steps: Sequence[Step]) -> Comparison:
    """Return that BatchNorm alone makes the difference, which many programs mean."""
    note = Mistake(_NORMS, steps[0].at, _SYNC, "note")
    return _different(alone, steps, (note,))


def _different(found: Comparison, steps: Sequence[Step], mistakes: tuple[Mistake, ...]) -> Comparison:
    """Return a verdict on steps whose difference a further run has explained."""
    kept = [step for step in steps if not step.is_skipped]
    apart = [step for step in kept if not step.is_equal()] or kept
    worst = max(apart, key=lambda step: step.difference())
    return replace(
        found,
        verdict="different",
        reason="",
        steps=tuple(sorted({step.number for step in apart})),
        difference=worst.difference(),
        tolerance=worst.tolerance(),
        mistakes=mistakes,
    )


def _noted(events: Sequence[Event]) -> dict[tuple[int, int], NotedStep]:
    return {(event.optimizer, event.step): event for event in events if isinstance(event, NotedStep)}


def _dull_steps(ranks: Sequence[dict[tuple[int, int], NotedStep]], steps: int) -> set[tuple[int, int]]:
    """Return last steps of an epoch with batches as large as the first, which tell no more than that."""
    first: dict[int, set[tuple[int, tuple[int, ...]]]] = {}
    last: dict[tuple[int, int], set[tuple[int, tuple[int, ...]]]] = {}
    for rank, noted in enumerate(ranks):
        for (optimizer, step), event in noted.items():
            if step == 1:
                first.setdefault(optimizer, set()).add((rank, event.rows))
            elif step > steps and not event.is_skipped:
                last.setdefault((optimizer, step), set()).add((rank, event.rows))
    is_scaled = any(event.is_skipped for noted in ranks for event in noted.values())
    return set() if is_scaled else {key for key, rows in last.items() if rows == first.get(key[0])}


def _common(logs: Sequence[Sequence[Event]]) -> list[tuple[int, int]]:
    """Return the steps that all noted, in order."""
    found = set.intersection(*(set(_noted(events)) for events in logs))
    return sorted(found, key=lambda key: (key[1], key[0]))


@contextlib.contextmanager
def checking(
    num_ranks: int, steps: int, command: Sequence[str], environment: Mapping[str, str]
) -> Iterator[Check]:
    """Make the folder of a comparison, for the length of a `with` block.

    `num_ranks` is 0 where the program starts them itself.
    """
    prefix = f"{FOLDER}{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        settings = Settings(str(Path(folder)), num_ranks, steps, by_program=not num_ranks)
        yield Check(settings, command, environment)

"""The state that the taps of one process share, and the notes of the ranks as one process reads them."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dpdemo.ranks.against.store import Backward, Clip, Detail, Kept, Sampled, Store
from dpdemo.ranks.events import (
    Event,
    NotedBatch,
    NotedDraw,
    NotedFrozen,
    NotedPass,
    NotedStep,
    Remark,
    Touched,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpdemo.ranks.against.settings import Settings
    from dpdemo.ranks.observe.notes import Notes

Key = tuple[str, int]


@dataclass
class Window:
    """The events since the last step of an optimizer; several optimizers may make a step with them."""

    is_stepped: bool = False
    backward: list[Backward] = field(default_factory=list)
    clips: list[Clip] = field(default_factory=list)
    norms: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    inputs: list[tuple[tuple[float, ...], ...]] = field(default_factory=list)
    first_leaf: int = 0
    """The place among them where those of the call under way begin."""
    calls: list[tuple[int, ...]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """Those of the classes of the modules that were called, as lines."""
    before_clip: dict[int, Sampled] = field(default_factory=dict)
    """By `id` of a parameter: its gradient before the last clipping, which follows the backward passes."""


def owner_of(rank: int, events: Sequence[Event]) -> int:
    """Return the first of the ranks that tensor parallelism joins with this one, to have the same rows."""
    found = (each.owner for each in events if isinstance(each, NotedStep) and each.owner >= 0)
    return next(found, rank)


def places(numbers: Sequence[float], among: Sequence[float]) -> list[int] | None:
    """Return the place of each number among others, or None if these are not the same."""
    mine, others = (sorted(range(len(each)), key=each.__getitem__) for each in (numbers, among))
    pairs = dict(zip(mine, others, strict=False))
    is_same = all(math.isclose(numbers[a], among[b], rel_tol=1e-5, abs_tol=1e-9) for a, b in pairs.items())
    return [pairs[place] for place in sorted(pairs)] if is_same and len(mine) == len(others) else None


class Ranks:
    """What the ranks noted, as the one process reads it."""

    def __init__(self, settings: Settings) -> None:
        numbers = range(settings.num_ranks)
        self.stores = [Store(settings.store(rank)) for rank in numbers]
        self.steps: dict[tuple[int, int], dict[int, NotedStep]] = {}
        self.batches: dict[Key, dict[int, dict[tuple[int, int], NotedBatch]]] = {}
        self.draws: dict[tuple[str, str, int], dict[int, NotedDraw]] = {}
        self.trained: set[Key] = set()
        self.lengths: dict[str, int] = {}
        self.touched: dict[str, bool] = {}
        """By path: whether it existed before all ranks wrote it."""
        self.owners: list[int] = []
        """The ranks that have rows of their own, in order."""
        self.group = [0]
        """Rank 0 and those that tensor parallelism joins with it."""
        self._frozen: dict[tuple[str, int], int] = {}
        self._in_a_pass: dict[tuple[str, str], int] = {}
        self._latest: tuple[int, int] | None = None
        self._details: dict[int, Detail] = {}
        noted = [
            [Event.from_line(line) for line in settings.events(rank).read_bytes().splitlines()]
            for rank in numbers
        ]
        for rank, events in enumerate(noted):
            owner = owner_of(rank, events)
            is_owner = owner == rank
            self.owners += [rank] * is_owner
            self.group += [rank] * (owner == 0 and rank > 0)
            for event in events:
                if is_owner or isinstance(event, (NotedStep, Touched)):
                    self._take(rank, event)

    def draws_in_a_pass(self, name: str, at: str) -> int:
        """Return how often a line draws between two backward passes of rank 0."""
        if (name, at) not in self._in_a_pass:
            found = [events[0] for key, events in self.draws.items() if key[:2] == (name, at) and 0 in events]
            by_pass = Counter(event.passes for event in found)
            self._in_a_pass[name, at] = Counter(by_pass.values()).most_common(1)[0][0] if by_pass else 1
        return self._in_a_pass[name, at]

    def details(self, optimizer: int, step: int) -> dict[int, Detail]:
        """Return the details of a step by rank."""
        events = self.steps.get((optimizer, step), {})
        if self._latest != (optimizer, step):
            self._latest = optimizer, step
            self._details = {
                rank: self.stores[rank].read(event.stored) for rank, event in sorted(events.items())
            }
        return self._details

    def frozen(self, key: tuple[str, int]) -> list[Kept]:
        """Return what rank 0 noted of a model's buffers and frozen parameters."""
        at = self._frozen.get(key)
        return [] if at is None else self.stores[0].read(at)

    def _take(self, rank: int, event: Event) -> None:
        if isinstance(event, NotedStep):
            self.steps.setdefault((event.optimizer, event.step), {})[rank] = event
        elif isinstance(event, NotedBatch):
            passes = self.batches.setdefault((event.at, event.number), {})
            passes.setdefault(event.k, {})[rank, event.turn] = event
        elif isinstance(event, NotedDraw):
            self.draws.setdefault((event.name, event.at, event.k), {})[rank] = event
        elif isinstance(event, NotedFrozen):
            self._frozen[event.kind, event.number] = event.stored
        elif isinstance(event, Touched):
            self.touched[event.path] = event.existed and self.touched.get(event.path, True)
        elif isinstance(event, NotedPass):
            self.trained.add((event.at, event.number))
            if rank == 0 and event.length is not None:
                self.lengths[event.made] = event.length


class State:
    """The state of one process."""

    def __init__(self, settings: Settings, notes: Notes) -> None:
        self.settings, self.notes = settings, notes
        self.owner = -1
        self.store = Store(settings.store_of(notes.process))
        self.window = Window()
        self.optimizers: list[Any] = []
        self.steps: Counter[int] = Counter()
        self.names: dict[int, str] = {}
        self.counts: Counter[Any] = Counter()
        self.met: weakref.WeakSet[Any] = weakref.WeakSet()
        """The outermost modules that were called."""
        self.is_done = False
        """Whether nothing more is noted."""
        self.pass_: Any = None
        """The pass over a DataLoader that was drawn from last; the first one that trained follows."""
        self.first_trained: Any = None
        self.drawn: dict[Any, None] = {}
        """The passes drawn from since the last backward pass: a step may take batches of two loaders."""
        self.scale = 1.0
        self.dtype = "float32"
        self.remarks: set[str] = set()

    @property
    def is_started(self) -> bool:
        """Whether an optimizer was made."""
        return bool(self.optimizers)

    @cached_property
    def ranks(self) -> Ranks:
        """What the ranks noted."""
        return Ranks(self.settings)

    def renew_window(self) -> None:
        """Begin the next window, once an optimizer has made a step; a call under way belongs to both."""
        last = self.window
        if not last.is_stepped:
            return
        self.window = Window()
        if self.counts["depth"]:
            self.window = Window(
                rows=last.rows[-1:],
                inputs=last.inputs[last.first_leaf :],
                calls=last.calls[-1:],
                files=last.files[-1:],
            )

    def coming(self) -> list[NotedStep]:
        """Return the ranks' notes of the step that comes next, in rank order."""
        left = (key for key in self.ranks.steps if key[1] > self.steps[key[0]])
        key = next(left, None)
        if key is None or key[1] != self.steps[key[0]] + 1:
            return []
        return [event for _, event in sorted(self.ranks.steps[key].items())]

    def order_in_call(self, sizes: Sequence[int]) -> list[int] | None:
        """Return the place in the ranks' rows, one rank after the other, of each row of the call under way.

        Rows may be those of several inputs one after the other, as of crops that are concatenated.
        """
        events, first = self.coming(), self.window.first_leaf
        leaves = self.window.inputs[first:]
        if not self.counts["depth"] or not leaves or not events:
            return None
        details = self.ranks.details(events[0].optimizer, events[0].step)
        ranks = [details[rank].inputs[first:] for rank in self.ranks.owners if rank in details]
        if not all(ranks) or len(ranks) != len(sizes):
            return None
        rows = [len(each[0][0]) for each in ranks]
        many = sizes[0] // max(1, rows[0])
        is_alike = len([each for each in leaves if len(each[0]) == len(leaves[0][0])]) >= many > 0
        if not is_alike or list(sizes) != [many * each for each in rows]:
            return None
        own = [number for each in ranks for number in each[0][0]]
        order = places(leaves[0][0], own)
        starts = [sum(sizes[:rank]) - sum(rows[:rank]) for rank, each in enumerate(rows) for _ in range(each)]
        steps = [each for each in rows for _ in range(each)]
        return order and [starts[row] + row + block * steps[row] for block in range(many) for row in order]

    def remark(self, text: str, *, is_fatal: bool = False) -> None:
        """Note a sentence for the reader, once."""
        if text not in self.remarks:
            self.remarks.add(text)
            self.notes.write(Remark(text, is_fatal))

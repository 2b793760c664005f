"""The log of a step's allocations, and its replay: the peak of each GPU, its parts, and what is reserved.

A GPU's *lane* is its share of the log, with allocations numbered in its own order: threads of replicas may
mix otherwise. The replay books a lane as the ledger's accounts do, and follows the caching allocator. So a
pass can be booked twice although it was made once, and with other sizes than it was made with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dpdemo.virtual.accounts import ALLOCATED, CHANGED, FREED, KEPT
from dpdemo.virtual.blocks import Kind, rounded
from dpdemo.virtual.caching import CachingAllocator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dpdemo.virtual.accounts import Event
    from dpdemo.virtual.caching import Block

RESET = -1
"""In a script: the step that counts begins, and peaks start again from what is live."""
_TEMPORARY, _ACTIVATION, _REMAINDER = Kind.TEMPORARY, Kind.ACTIVATION, Kind.REMAINDER


class Step(NamedTuple):
    """One event of a lane but for its size; `number` is that of the allocation."""

    what: int
    number: int
    kind: int
    phase: str
    stream: int


Parts = tuple[tuple[Step, ...], ...]
PartSizes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Lane:
    """One GPU's events: part 0 is what was live before, the script tells the order of the others.

    `sizes` has those of each part's allocations, in order: lanes with the same parts differ in sizes alone.
    """

    parts: Parts
    script: tuple[int, ...]
    sizes: PartSizes

    def is_closed(self, places: Sequence[int]) -> bool:
        """Return whether after these parts only what was live, and what the optimizer's part 3 made, is left.

        Then the first pass, part 2, can be booked again: it neither keeps anything nor uses anything up.
        """
        live: set[int] = set()
        kept: set[int] = set()
        for place in (0, *places):
            before = set(live)
            for step in self.parts[place]:
                if step.what == ALLOCATED:
                    live.add(step.number)
                elif step.what == FREED:
                    live.discard(step.number)
            if place in {0, 3}:
                kept |= live - before
        return live == kept

    def after(self, first: Lane) -> Lane | None:
        """Return this lane with the sizes of a first pass before its last parts, or None if these do not fit.

        They fit if the steps are the same, and the last forward pass allocates what the first one does.
        """
        *before, _, last = self.parts
        if first.parts[: len(before)] != (*before,) or _forward(last, self.sizes[-1]) != _forward(
            first.parts[2], first.sizes[2]
        ):
            return None
        return replace(self, sizes=(*first.sizes[: len(before)], *self.sizes[-2:]))


def _forward(part: Sequence[Step], sizes: Sequence[int]) -> Sequence[int]:
    """Return the sizes of what a part allocates before its backward pass."""
    taken = takewhile(lambda step: step.what != KEPT, part)
    return sizes[: sum(step.what == ALLOCATED for step in taken)]


@dataclass(frozen=True)
class Figures:
    """What a replay finds on one GPU: bytes by kind at the peak, the most of each, and reserved bytes."""

    parts: tuple[int, ...]
    most: tuple[int, ...]
    phase: str
    reserved_bytes: int


def lanes_of(
    log: Sequence[Event], cuts: Sequence[tuple[int, int]], script: tuple[int, ...], num_gpus: int
) -> list[Lane]:
    """Cut a log into parts, and these into lanes. What was live at the first cut is part 0."""
    live = live_events(log[: cuts[0][0]])
    homes = {event[1]: event[2] for event in log if event[0] == ALLOCATED}
    numbers: list[dict[int, int]] = [{} for _ in range(num_gpus)]
    streams: list[dict[int, int]] = [{0: 0} for _ in range(num_gpus)]
    parts: list[list[tuple[Step, ...]]] = [[] for _ in range(num_gpus)]
    sizes: list[list[tuple[int, ...]]] = [[] for _ in range(num_gpus)]
    for events in (live, *(log[begin:end] for begin, end in cuts)):
        steps: list[list[Step]] = [[] for _ in range(num_gpus)]
        taken: list[list[int]] = [[] for _ in range(num_gpus)]
        for event in events:
            if event[0] == KEPT:
                for each in steps:
                    each.append(_KEEP)
                continue
            index = homes.get(event[1])
            if index is not None:
                number = numbers[index].setdefault(event[1], len(numbers[index]))
                steps[index].append(_step(event, number, streams[index]))
                if event[0] == ALLOCATED:
                    taken[index].append(event[3])
        for index in range(num_gpus):
            parts[index].append(tuple(_in_order(steps[index])))
            sizes[index].append(tuple(taken[index]))
    return [Lane(tuple(parts[index]), script, tuple(sizes[index])) for index in range(num_gpus)]


def live_events(log: Sequence[Event]) -> list[Event]:
    """Return an event for each allocation that is live at the end of a log, with its kind by then."""
    live: dict[int, Event] = {}
    for event in log:
        if event[0] == ALLOCATED:
            live[event[1]] = event
        elif event[0] == FREED:
            live.pop(event[1], None)
        elif event[0] == KEPT:
            live = {
                birth: _of_kind(each, _ACTIVATION) if each[4] == _TEMPORARY else each
                for birth, each in live.items()
            }
        elif event[1] in live:
            live[event[1]] = _of_kind(live[event[1]], event[2])
    return [*live.values()]


def _of_kind(event: Event, kind: int) -> Event:
    return *event[:4], kind, *event[5:]


_KEEP = Step(KEPT, -1, 0, "", 0)


def _step(event: Event, number: int, streams: dict[int, int]) -> Step:
    """Make a step; streams are numbered as they come, since each model makes new ones."""
    if event[0] == ALLOCATED:
        kind, phase, stream = event[4:]
        return Step(ALLOCATED, number, kind, phase, streams.setdefault(stream, len(streams)))
    return Step(event[0], number, 0 if event[0] == FREED else event[2], "", 0)


def _in_order(steps: list[Step]) -> Iterator[Step]:
    """Sort changes to one kind that follow each other: marking goes through a set, in any order."""
    for run in groupby(steps, key=lambda step: (step.what, step.what == CHANGED and step.kind)):
        yield from sorted(run[1]) if run[0][0] == CHANGED else run[1]


def _amounts(kind: int, block: Block) -> tuple[tuple[int, int], ...]:
    """Return the bytes of a block by kind."""
    if block.size == block.requested:
        return ((kind, block.size),)
    return (kind, block.requested), (_REMAINDER, block.size - block.requested)


class Replay:
    """Books a lane; its sums are those of `virtual/accounts.py`, Note [What the peak was made of].

    Bytes count as `torch.cuda.memory_allocated` counts them: by block, which may be larger than the request.
    """

    def __init__(self, lane: Lane, held: Sequence[int]) -> None:
        self.allocator = CachingAllocator()
        self._blocks: dict[int, tuple[int, Block]] = {}  # by number, with the turn at which it was taken
        self._kinds: dict[int, int] = {}
        self._turn = self._kept_until = 0
        self.live = self.peak = self.peak_at = 0
        self.phase = ""
        self.held, self.young, self.gone, self.most = ([0] * len(Kind) for _ in range(4))
        self._book(lane.parts[0], lane.sizes[0])
        for size in held:
            self.allocator.allocate(rounded(size))
        for place in lane.script:
            if place == RESET:
                self._reset()
            else:
                self._book(lane.parts[place], lane.sizes[place])

    def figures(self) -> Figures:
        """Return what was found."""
        sums = zip(self.held, self.young, self.gone, strict=True)
        parts = tuple(held - young + gone for held, young, gone in sums)
        return Figures(parts, tuple(self.most), self.phase, self.allocator.reserved_bytes)

    def _reset(self) -> None:
        self.peak, self.most = self.live, list(self.held)
        self._set_peak("between steps")

    def _set_peak(self, phase: str) -> None:
        self.peak_at, self.phase = self._turn, phase
        self.young, self.gone = [0] * len(Kind), [0] * len(Kind)

    def _book(self, steps: Sequence[Step], sizes: Sequence[int]) -> None:
        following = iter(sizes)
        for what, number, kind, phase, stream in steps:
            if what == ALLOCATED:
                self._take(number, rounded(next(following)), kind, phase, stream)
            elif what == KEPT:
                self._keep()
            elif number in self._blocks:
                self._give_back(number) if what == FREED else self._change(number, kind)

    def _take(self, number: int, num_bytes: int, kind: int, phase: str, stream: int) -> None:
        self._turn += 1
        block = self.allocator.allocate(num_bytes, stream)
        self._blocks[number] = self._turn, block
        self._kinds[number] = kind
        self.live += block.size
        amounts = _amounts(kind, block)
        for part, amount in amounts:
            self.held[part] += amount
            self.most[part] = max(self.most[part], self.held[part])
        if self.live > self.peak:
            self.peak = self.live
            self._set_peak(phase)
        else:
            for part, amount in amounts:
                self.young[part] += amount

    def _give_back(self, number: int) -> None:
        kind = self._kind_of(number)
        turn, block = self._blocks.pop(number)
        self.live -= block.size
        for part, amount in _amounts(kind, block):
            self.held[part] -= amount
            if turn > self.peak_at:
                self.young[part] -= amount
            else:
                self.gone[part] += amount
        self.allocator.free(block)

    def _kind_of(self, number: int) -> int:
        kind = self._kinds[number]
        is_kept = kind == _TEMPORARY and self._blocks[number][0] <= self._kept_until
        return _ACTIVATION if is_kept else kind

    def _change(self, number: int, after: int) -> None:
        before = self._kind_of(number)
        self._kinds[number] = after
        if before == after:
            return
        turn, block = self._blocks[number]
        for sums in (self.held, self.young) if turn > self.peak_at else (self.held,):
            sums[before] -= block.requested
            sums[after] += block.requested
        self.most[after] = max(self.most[after], self.held[after])

    def _keep(self) -> None:
        self._kept_until = self._turn
        for sums in (self.held, self.young):
            sums[_ACTIVATION] += sums[_TEMPORARY]
            sums[_TEMPORARY] = 0
        self.most[_ACTIVATION] = max(self.most[_ACTIVATION], self.held[_ACTIVATION])


Terms = tuple[int, int, int, int]
"""a, b, c and the divisor of a size (a + b · rows + c · batch) / divisor."""
Points: TypeAlias = "Sequence[tuple[int, int]]"
"""The rows of a GPU and the batch, for each lane."""


def fit(lanes: Sequence[Lane], points: Points) -> Callable[[int, int], Lane | None] | None:
    """Return the lane at any rows of the GPU and any batch, from two or three at (rows, batch).

    From two the simplest law is taken: a constant, a multiple of the rows or of the batch, or a line. From
    three each size must be a + b · rows + c · batch, b and c not below 0; where rows and batches lie on a
    line, b alone is used. None if lanes differ in more than sizes, or a size has no law. At a size below 1
    there is no lane.
    """
    first = lanes[0]
    if any((lane.parts, lane.script) != (first.parts, first.script) for lane in lanes):
        return None
    columns = [[*zip(*sizes, strict=True)] for sizes in zip(*(lane.sizes for lane in lanes), strict=True)]
    distinct = [*dict.fromkeys(column for part in columns for column in part)]
    solve = _simplest if len(lanes) == 2 else _solve
    terms = [solved for column in distinct if (solved := solve(column, points)) is not None]
    if len(terms) < len(distinct):
        return None
    place = {column: number for number, column in enumerate(distinct)}
    places = [[place[column] for column in part] for part in columns]

    def at(rows: int, batch: int) -> Lane | None:
        sizes = [-(-(a + b * rows + c * batch) // divisor) for a, b, c, divisor in terms]
        if min(sizes, default=1) < 1:
            return None
        return replace(first, sizes=tuple(tuple(sizes[number] for number in part) for part in places))

    return at


def _simplest(sizes: tuple[int, ...], points: Points) -> Terms | None:
    (s1, s2), ((x1, y1), (x2, y2)) = sizes, points
    if s1 == s2:
        return s1, 0, 0, 1
    if s1 * x2 == s2 * x1:
        return 0, s1, 0, x1
    if s1 * y2 == s2 * y1:
        return 0, 0, s1, y1
    return None if x1 == x2 else (s1 * (x2 - x1) - (s2 - s1) * x1, s2 - s1, 0, x2 - x1)


def _solve(sizes: tuple[int, ...], points: Points) -> Terms | None:
    """Return the terms of a size; None where no line goes through all three."""
    (x1, y1), (x2, y2), (x3, y3) = points
    s1, s2, s3 = sizes
    divisor = (x2 - x1) * (y3 - y1) - (x3 - x1) * (y2 - y1)
    if divisor:
        b = (s2 - s1) * (y3 - y1) - (s3 - s1) * (y2 - y1)
        c = (x2 - x1) * (s3 - s1) - (x3 - x1) * (s2 - s1)
        if min(b * divisor, c * divisor) < 0:  # it goes through any three points, such as those of squares
            return None
        return divisor * s1 - b * x1 - c * y1, b, c, divisor
    divisor = x2 - x1
    b = s2 - s1
    if not divisor or divisor * (s3 - s1) != b * (x3 - x1):
        return (s1, 0, 0, 1) if s1 == s2 == s3 else None
    return divisor * s1 - b * x1, b, 0, divisor

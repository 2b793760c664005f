"""`--weights auto` by memory: chunks with which the GPUs are equally full, each of them tried.

What a GPU holds grows nearly along a line with its own rows, and on the first one with the whole batch as
well. So a step shows how many rows more or fewer each GPU should have, and the next step how far that holds.
The lines only propose: each result has been predicted by a step of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, islice, product

from torch import nn

from dpdemo.arithmetic.weights import split_by_weights
from dpdemo.errors import RunError, UsageError
from dpdemo.memory.search import LIMIT, largest_that_fits
from dpdemo.memory.steps import Measured, Stepper
from dpdemo.reports.memory import GpuMemory
from dpdemo.splitting.weighted import WeightedDataParallel

Chunks = tuple[int, ...]
_MOST_ROUNDS = 12
SEGMENTS = 40 * 2**20
"""The larger of two sizes may need this much less: two of the segments that small requests share."""
_MOST_NEIGHBOURS = 48


class Weigher:
    """Predicts steps of a model with any chunks, each once."""

    def __init__(self, stepper: Stepper, say: Callable[[str], None]) -> None:
        wrapper = stepper.built.wrapper
        assert isinstance(wrapper, WeightedDataParallel)  # noqa: S101 - `auto` is built so
        if len(set(wrapper.device_ids)) < len(wrapper.device_ids):
            raise UsageError(
                f"expected each GPU once, got {wrapper.device_ids} - at key `gpus`",
                hint="memory is weighed between GPUs, not between replicas of one",
            )
        self._wrapper: WeightedDataParallel[nn.Module] = wrapper
        self._stepper = stepper
        self._say = say
        self._known: dict[Chunks, Measured] = {}
        self._smallest = 1

    @property
    def num_predictions(self) -> int:
        """Steps predicted so far."""
        return len(self._known)

    def measured(self, chunks: Chunks) -> Measured:
        """Return what a step with these chunks shows.

        Raises:
            RunError: if the model cannot run them.

        """
        if chunks not in self._known:
            self._say(f"one step with chunks of {', '.join(map(str, chunks))}")
            self.cut_into(chunks)
            self._known[chunks] = self._stepper.measure(sum(chunks))
        return self._known[chunks]

    def cut_into(self, chunks: Chunks) -> None:
        """Let further steps have these chunks."""
        self._wrapper.weights, self._wrapper.chunks = None, chunks

    def balanced(self, batch_size: int) -> Chunks:
        """Find the chunks of a batch with which the GPU that has least room left has most."""
        count = len(self._wrapper.device_ids)
        chunks = self._runnable(split_by_weights(batch_size, [1] * count).rows())
        lines = self._lines(chunks)
        best = chunks
        for _ in range(_MOST_ROUNDS):
            if self._least_room(chunks) > self._least_room(best):
                best = chunks
            level = _level(chunks, self._rooms(chunks), lines)
            following = self._runnable(split_by_weights(batch_size, level).rows())
            if following in self._known:
                break
            lines = self._steeper(lines, chunks, following)
            chunks = following
        return max((chunks, best), key=self._least_room)

    def fullest(self, first: int) -> Chunks:
        """Find the largest chunks over all GPUs with which each fits, where none can take one row more.

        No row at all is the answer where not even one sample fits.
        """
        count = len(self._wrapper.device_ids)
        chunks = self._runnable(split_by_weights(max(first, count), [1] * count).rows())
        lines = self._lines(chunks)
        for _ in range(_MOST_ROUNDS):
            rooms = self._rooms(chunks)
            steps = [int(room // line) for room, line in zip(rooms, lines, strict=True)]
            following = tuple(max(0, rows + step) for rows, step in zip(chunks, steps, strict=True))
            following = self._runnable(following if any(following) else (1, *(0,) * (count - 1)))
            if sum(following) > LIMIT:
                raise RunError(
                    f"expected memory that grows with the batch, got room for {LIMIT} samples - "
                    "at `gpu_memory`",
                    hint="do the model's inputs have a batch dimension? see --input",
                )
            if following in self._known:
                break
            lines = self._steeper(lines, chunks, following)
            chunks = following
        return self._beyond_steps(self._polished(chunks), lines)

    def following(self, chunks: Chunks) -> Chunks:
        """Give the chunks with one row more, where that lacks least."""
        return max(_with_one_more(chunks, self._smallest), key=self._least_room)

    def _polished(self, chunks: Chunks) -> Chunks:
        """Take rows away until every GPU fits, and give rows while one can take them."""
        if self._least_room(chunks) < 0:
            chunks = self._shrunk(chunks)
        while any(chunks):
            larger = self.following(chunks)
            if self._least_room(larger) < 0:
                return chunks
            chunks = larger
        return chunks

    def _beyond_steps(self, chunks: Chunks, lines: Sequence[float]) -> Chunks:
        """Look for larger chunks past some that do not fit: what is reserved grows in steps, and shrinks."""
        while True:
            near = islice(self._larger_neighbours(chunks, lines), _MOST_NEIGHBOURS)
            larger = next((found for found in near if self._least_room(found) >= 0), None)
            if larger is None:
                return chunks
            chunks = self._polished(larger)

    def _larger_neighbours(self, chunks: Chunks, lines: Sequence[float]) -> Iterator[Chunks]:
        """Yield larger chunks with other rows on one GPU or two, if their tensors alone have room.

        GPUs after the first that can hold as much are alike: of their chunks one order is enough.
        """
        based = chunks if any(chunks) else (self._smallest, *chunks[1:])
        gpus = self._gpus(based)
        rooms = [(gpu.capacity_bytes or 0) - gpu.context_bytes - gpu.peak_bytes for gpu in gpus]
        reach = [min(_MOST_ROUNDS, int(SEGMENTS // line)) for line in lines]
        seen = {chunks}
        pairs = list(combinations(range(len(chunks)), 2)) or [(0, 0)]
        changes = [
            (first, one, second, other)
            for first, second in pairs
            for one, other in product(range(-2, reach[first] + 1), range(-2, reach[second] + 1))
        ]
        for first, one, second, other in sorted(changes, key=lambda change: change[1] + change[3]):
            rows = list(based)
            rows[first] += one
            rows[second] += other
            wanted = self._in_order(tuple(rows), gpus)
            is_larger = sum(wanted) > sum(chunks) and min(wanted) >= 0
            if wanted in seen or not is_larger or (self._smallest > 1 and 1 in wanted):
                continue
            seen.add(wanted)
            if all(
                (new - old) * line <= room + line
                for new, old, line, room in zip(wanted, based, lines, rooms, strict=True)
            ):
                yield wanted

    @staticmethod
    def _in_order(chunks: Chunks, gpus: Sequence[GpuMemory]) -> Chunks:
        alike: dict[int | None, list[int]] = {}
        for index, gpu in enumerate(gpus[1:], start=1):
            alike.setdefault(gpu.capacity_bytes, []).append(index)
        found = list(chunks)
        for places in alike.values():
            rows = sorted((chunks[index] for index in places), reverse=True)
            for index, number in zip(places, rows, strict=True):
                found[index] = number
        return tuple(found)

    def _shrunk(self, chunks: Chunks) -> Chunks:
        """Take rows from the GPUs that lack room, and where one has none to give from all of them."""
        for _ in range(_MOST_ROUNDS):
            fewer = tuple(
                max(0, rows - 1) if room < 0 else rows
                for rows, room in zip(chunks, self._rooms(chunks), strict=True)
            )
            fewer = self._runnable(fewer)
            if fewer == chunks or not any(fewer):
                break
            chunks = fewer
            if self._least_room(chunks) >= 0:
                return chunks

        def proportional(batch_size: int) -> Chunks:
            return self._runnable(split_by_weights(batch_size, chunks).rows())

        largest = largest_that_fits(lambda size: self._least_room(proportional(size)), sum(chunks))
        return proportional(largest) if largest else (0,) * len(chunks)

    def _runnable(self, chunks: Chunks) -> Chunks:
        """Leave no chunk of a single row to a model that cannot run it, as BatchNorm cannot in training."""
        if 1 in chunks and self._smallest == 1:
            try:
                self.measured(chunks)
            except RunError:
                self._smallest = 2
                alone = (2, *(0,) * (len(chunks) - 1))
                self.measured(alone)  # it raises where it is something else
        if self._smallest == 1 or 1 not in chunks:
            return chunks
        spare = chunks.count(1)
        kept = [0 if rows == 1 else rows for rows in chunks]
        kept[kept.index(max(kept))] += spare
        return tuple(kept) if sum(kept) > 1 else (2, *(0,) * (len(chunks) - 1))

    def _gpus(self, chunks: Chunks) -> list[GpuMemory]:
        found = self.measured(chunks).gpus
        return [found[index] for index in self._wrapper.device_ids]

    def _rooms(self, chunks: Chunks) -> list[int]:
        """Return the room left on each GPU; where no capacity is known, what it holds below nothing."""
        return [-gpu.peak_bytes if gpu.spare_bytes is None else gpu.spare_bytes for gpu in self._gpus(chunks)]

    def _least_room(self, chunks: Chunks) -> int:
        """Return the least room on any GPU, one that only gathers included."""
        found = self.measured(chunks).gpus
        return min(-gpu.peak_bytes if gpu.spare_bytes is None else gpu.spare_bytes for gpu in found)

    def _lines(self, chunks: Chunks) -> list[float]:
        """Estimate the bytes of a row on each GPU, by a step with twice the rows."""
        twice = tuple(2 * rows for rows in chunks)
        return self._steeper([1.0] * len(chunks), chunks, self._runnable(twice))

    def _steeper(self, lines: Sequence[float], before: Chunks, after: Chunks) -> list[float]:
        """Estimate the bytes of a row anew on each GPU whose rows changed."""
        changes = zip(lines, before, after, self._gpus(before), self._gpus(after), strict=True)
        return [
            line if old == new else max(1.0, (then.peak_bytes - was.peak_bytes) / (new - old))
            for line, old, new, was, then in changes
        ]


def _with_one_more(chunks: Chunks, smallest: int) -> list[Chunks]:
    """List the chunks with one row more on one GPU; on one without rows it is as many as it must have."""
    return [
        (*chunks[:index], rows + 1 if rows else smallest, *chunks[index + 1 :])
        for index, rows in enumerate(chunks)
    ]


def _level(chunks: Chunks, rooms: Sequence[int], lines: Sequence[float]) -> list[float]:
    """Move rows until all GPUs would have the same room; one that would need fewer than none has none."""
    active = list(range(len(chunks)))
    while True:
        total = sum(1 / lines[index] for index in active)
        missing = sum(rows for index, rows in enumerate(chunks) if index not in active)
        level = (sum(rooms[index] / lines[index] for index in active) - missing) / total
        wanted = {index: chunks[index] + (rooms[index] - level) / lines[index] for index in active}
        negative = [index for index, rows in wanted.items() if rows < 0]
        if not negative or len(negative) == len(active):
            return [max(0.0, wanted.get(index, 0.0)) for index in range(len(chunks))]
        active = [index for index in active if index not in negative]

"""`largest_batch`: the largest batch that fits every GPU, the GPU that limits it, and remedies."""

import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from typing import Unpack

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.config.fields import Config
from dpdemo.config.load import Keys, expect_strategy, resolve, showing_keys
from dpdemo.errors import DpdemoError, RunError, UsageError
from dpdemo.memory.books import Books
from dpdemo.memory.case import STRATEGIES, Case, Progress
from dpdemo.memory.hardware import Hardware, Sizes
from dpdemo.memory.inputs import Given
from dpdemo.memory.published import published, worst_error
from dpdemo.memory.remedies import Law, find_remedies
from dpdemo.memory.reporting import report_of, with_all_ranks
from dpdemo.memory.search import LIMIT, largest_that_fits, past_steps
from dpdemo.memory.steps import Measured, Stepper
from dpdemo.memory.trace import Lane, fit
from dpdemo.models.libraries import InputSizes
from dpdemo.results.memory import MemoryReport
from dpdemo.results.memorydata import Fit, GpuMemory, Training
from dpdemo.results.wrapping import Wrapping

SEGMENTS = 40 * 2**20
"""The larger of two sizes may need this much less: two of the segments that small requests share."""
_LEAST_TRACED = 4
"""The least rows of a chunk from which others follow."""
_MOST_TRACED = 4
"""Most steps from which sizes may follow."""
_MOST_ROWS = 12
"""Most rows to search past a batch that does not fit, for a larger one that does."""


@showing_keys
def largest_batch(  # noqa: PLR0913 - all that a search depends on
    config: Config | str | os.PathLike[str] | None = None,
    *,
    gpu_memory: Sizes = None,
    gpu: str | None = None,
    reserve: str | int | None = None,
    training: Training | None = None,
    inputs: Given | str = None,
    input_sizes: InputSizes | None = None,
    progress: Progress | None = None,
    numbers: bool = False,
    wrapping: Wrapping | None = None,
    **overrides: Unpack[Keys],
) -> MemoryReport:
    """Find the largest batch with which every GPU fits, by predicting steps on both sides of it.

    Args:
        config: as for `predict_memory`, like all that follows; the search begins at its batch size.
        gpu_memory: the capacity of each GPU.
        gpu: the card, in place of `gpu_memory`.
        reserve: memory kept free on each GPU.
        training: the optimizer, the loss and other settings.
        inputs: the inputs of a batch size.
        input_sizes: how long texts and how large images are, for a model of a library.
        progress: called with a description of each piece of work.
        numbers: compute with real numbers.
        wrapping: blocks, checkpoints and other settings of the strategy.
        overrides: config keys that win over `config`.

    Returns:
        The step with the largest batch that fits, and the gain of each remedy in the next larger step. Under
        `ddp` and `fsdp2` the batch is each rank's.

    Raises:
        UsageError: if the config, a size or the inputs are not valid, or the model cannot be built.
        RunError: if the model fails, or needs numbers.

    """
    expect_capacity(gpu_memory, gpu)
    checked = expect_strategy(resolve(config, overrides), STRATEGIES)
    case = Case(
        config=checked,
        training=training or Training(),
        hardware=Hardware(gpu_memory, gpu, reserve),
        inputs=inputs,
        input_sizes=input_sizes,
        numbers=numbers,
        wrapping=wrapping or Wrapping(),
        say=progress or (lambda _: None),
    )
    return search_largest(case)


def expect_capacity(gpu_memory: Sizes, gpu: str | None) -> None:
    """Check that the memory of each GPU is known, or its card.

    Raises:
        UsageError: if it is not.

    """
    if gpu_memory is None and gpu is None:
        raise UsageError(
            "expected the memory of each GPU, got none",
            key="gpu_memory",
            hint="name it or the card: {gpu_memory=24GiB}, or {gpu=A100-80GB}",
        )


def search_largest(case: Case) -> MemoryReport:
    """Find the largest batch of a case."""
    with ExitStack() as block:
        search = _Search(case, block)
        largest = search.largest()
        if largest == LIMIT:
            raise RunError(
                f"expected memory that grows with the batch, got room for {LIMIT} samples",
                key="gpu_memory",
                hint="do the model's inputs have a batch dimension? see {input=}",
            )
        measured = search.measured(largest or 1)
        with search.opened() as stepper:
            report, shards = report_of(case, stepper, measured), case.shards(stepper)
        notes = (*report.notes, published(case.config.strategy).note)
        report = replace(report, fit=search.fit(largest), notes=notes)
    return with_all_ranks(case, report, shards)


class _Search:
    """Predicts steps once for each batch size, and remembers them.

    Where the sizes of all allocations follow from a few steps, others are booked with those. A step with the
    answer is made, too: if it has other sizes, they follow from three steps; and if these err, each is made.
    """

    def __init__(self, case: Case, block: ExitStack) -> None:
        self._case = case
        self._say = case.say
        self._known: dict[int, Measured] = {}
        self._law: Law | None = None
        self._books: Books | None = None
        self._booked: dict[int, tuple[GpuMemory, ...]] = {}
        self.failed: dict[int, RunError] = {}
        self._is_parallel = case.config.strategy == "dp"
        self.opened: Callable[[], AbstractContextManager[Stepper]] = case.opened
        """Opens a model that has made no step: DataParallel's forgets its steps, a rank's does not."""
        if self._is_parallel:
            held = block.enter_context(case.opened())
            self.opened = lambda: nullcontext(held)

    def measured(self, batch_size: int) -> Measured:
        """Return a step of this size, or of the next size that the model can run."""
        if batch_size not in self._known:
            with self.opened() as stepper:
                self._books = stepper.books
                self._say(f"one step with a batch of {batch_size}")
                self._known[batch_size] = self._measure(stepper, batch_size)
        return self._known[batch_size]

    def _measure(self, stepper: Stepper, batch_size: int) -> Measured:
        try:
            return stepper.measure(batch_size)
        except RunError as error:
            num_gpus = self._num_chunks
            split = split_batch(batch_size, num_gpus)
            if split.smallest > 1:
                raise
            # BatchNorm cannot train on a chunk of one sample: a batch a little larger is as good a measure
            self.failed[batch_size] = error
            return stepper.measure(2 * num_gpus if split.largest == 1 else batch_size + 1)

    def largest(self) -> int:
        """Return the largest batch that fits, and that the model can run."""
        with self.opened() as stepper:
            first = self._case.rows(stepper.batches.batch_size)
        least = max(first, _LEAST_TRACED * self._num_chunks)
        found = self._by_law(first, [least, 2 * least - 1])
        if found is None:
            self._law = None
            found = self._largest(first)
        while found and found in self.failed:  # it would fit, but the model cannot run it
            found -= 1
            self.room(found)
        return found

    def _largest(self, first: int) -> int:
        found = largest_that_fits(self.room, first)
        return found if found == LIMIT else past_steps(self.room, found, self.reach())

    def _by_law(self, first: int, batches: list[int]) -> int | None:
        """Return the largest batch, by sizes that follow from few steps; None if the answer's do not."""
        while len(batches) <= _MOST_TRACED:
            self._law = self._law_of(batches[-3:])
            self._booked.clear()
            found = None if self._law is None else self._largest(first)
            if self._law is None or found == LIMIT:
                return None
            answer = self.measured(found or 1)
            if [*answer.lanes] == self._law(answer.batch_size):
                return found
            batches.append(answer.batch_size)
        return None

    def _law_of(self, batches: Sequence[int]) -> Law | None:
        """Make some steps, and return all lanes at any batch size; None if their sizes follow no law."""
        try:
            steps = [self.measured(batch_size) for batch_size in batches]
        except DpdemoError:
            return None
        if any(batch_size in self.failed for batch_size in batches):
            return None
        shares = [self._rows(batch_size) for batch_size in batches]
        fits = []
        for index in range(len(steps[0].lanes)):
            points = [(rows[index], size) for rows, size in zip(shares, batches, strict=True)]
            found = fit([step.lanes[index] for step in steps], points)
            if found is None:
                return None
            fits.append(found)

        def law(size: int) -> list[Lane] | None:
            lanes = [at(rows, size) for at, rows in zip(fits, self._rows(size), strict=True)]
            return None if any(lane is None for lane in lanes) else [*filter(None, lanes)]

        return law

    @property
    def _num_chunks(self) -> int:
        return len(self._case.config.ordinals or ()) if self._is_parallel else 1

    def _rows(self, batch_size: int) -> list[int]:
        """Return the rows of each virtual GPU; of ranks, those of the one that is made."""
        lanes = len(next(iter(self._known.values())).lanes)
        if not self._is_parallel:
            return [batch_size] * lanes
        rows = [0] * lanes
        ordinals = self._case.config.ordinals or ()
        for ordinal, chunk in zip(ordinals, split_batch(batch_size, len(ordinals)).rows(), strict=True):
            rows[ordinal] += chunk
        return rows

    def room(self, batch_size: int) -> int:
        """Return the room left on the GPU that has least."""
        return min(gpu.spare_bytes or 0 for gpu in self.gpus(batch_size))

    def gpus(self, batch_size: int) -> tuple[GpuMemory, ...]:
        """Return the GPUs after a step of this size, by the law if there is one."""
        if self._law is None or self._books is None or batch_size in self._known:
            return self.measured(batch_size).gpus
        if batch_size not in self._booked:
            is_whole = min(split_batch(batch_size, self._num_chunks).rows()) > 1
            lanes = self._law(batch_size) if is_whole else None
            if lanes is None:
                return self.measured(batch_size).gpus
            self._booked[batch_size] = self._books.gpus(lanes)
        return self._booked[batch_size]

    def reach(self) -> int:
        """Return how many more rows may need less memory: reserved memory grows in segments."""
        fewest, most = min(self._known), max(self._known)
        grown = self._peak(most) - self._peak(fewest)
        return min(_MOST_ROWS, SEGMENTS * (most - fewest) // max(1, grown)) if most > fewest else 1

    def _peak(self, batch_size: int) -> int:
        return max(gpu.peak_bytes for gpu in self._known[batch_size].gpus)

    def fit(self, largest: int) -> Fit:
        """Return the GPU that limits the batch, in which phase, and remedies: of the next larger batch."""
        gpus = self.gpus(largest + 1)
        following = self._known[largest + 1].batch_size if largest + 1 in self._known else largest + 1
        gpu = min(gpus, key=lambda gpu: gpu.spare_bytes or 0)
        remedies = find_remedies(self._case, self.opened, following, gpus, self._law)
        missing, margin = max(0, -(gpu.spare_bytes or 0)), self._margin(gpu, following)
        return Fit(largest, gpu.device, gpu.phase, missing, len(self._known), remedies, margin)

    def _margin(self, gpu: GpuMemory, batch_size: int) -> int:
        """Return how many rows the worst published error is worth on a GPU, which was at a batch size."""
        other = max(self._known, key=lambda known: abs(known - batch_size))
        there = next(each for each in self._known[other].gpus if each.device == gpu.device)
        grown = (gpu.needed_bytes - there.needed_bytes) * (1 if batch_size > other else -1)
        share = worst_error() * gpu.needed_bytes / grown if grown > 0 else 0
        return math.ceil(share * abs(batch_size - other))

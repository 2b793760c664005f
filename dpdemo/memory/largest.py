"""`largest_batch`: the largest batch that fits every GPU, the GPU that limits it, and remedies."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Unpack

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.config.fields import Config
from dpdemo.config.load import Keys, expect_strategy, resolve, showing_keys
from dpdemo.errors import DpdemoError, RunError, UsageError
from dpdemo.memory.case import STRATEGIES, Case, Progress
from dpdemo.memory.hardware import Hardware, Sizes
from dpdemo.memory.inputs import Given
from dpdemo.memory.remedies import find_remedies
from dpdemo.memory.reporting import report_of, with_all_ranks
from dpdemo.memory.search import LIMIT, largest_that_fits, past_steps
from dpdemo.memory.steps import Measured, Stepper
from dpdemo.memory.trace import Lane, fit
from dpdemo.models.libraries import InputSizes
from dpdemo.results.memory import MemoryReport
from dpdemo.results.memorydata import MEDIAN_ERROR, Fit, GpuMemory, Training
from dpdemo.results.wrapping import Wrapping

LanesAt = Callable[[int], list[Lane]]
"""The lane of each GPU at a batch size."""
SEGMENTS = 40 * 2**20
"""The larger of two sizes may need this much less: two of the segments that small requests share."""
_LEAST_TRACED = 4
"""The least rows of a chunk from which others follow."""
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
    with case.opened() as stepper:
        search = _Search(case, stepper)
        largest = search.largest(case.rows(stepper.batches.batch_size))
        if largest == LIMIT:
            raise RunError(
                f"expected memory that grows with the batch, got room for {LIMIT} samples",
                key="gpu_memory",
                hint="do the model's inputs have a batch dimension? see {input=}",
            )
        report, shards = report_of(case, stepper, search.measured(largest or 1)), case.shards(stepper)
        report = replace(report, fit=search.fit(largest))
    return with_all_ranks(case, report, shards)


class _Search:
    """Predicts steps once for each batch size, and remembers them.

    Where the sizes of all allocations follow from three steps, others are booked with those; the answer and
    its successor are made, and if they say otherwise, so is every step.
    """

    def __init__(self, case: Case, stepper: Stepper) -> None:
        self._case = case
        self._stepper = stepper
        self._say = case.say
        self._known: dict[int, Measured] = {}
        self._lanes: LanesAt | None = None
        self._booked: dict[int, int] = {}
        self.failed: dict[int, RunError] = {}

    def measured(self, batch_size: int) -> Measured:
        """Return a step of this size, or of the next size that the model can run."""
        if batch_size not in self._known:
            self._say(f"one step with a batch of {batch_size}")
            self._known[batch_size] = self._measure(batch_size)
        return self._known[batch_size]

    def _measure(self, batch_size: int) -> Measured:
        try:
            return self._stepper.measure(batch_size)
        except RunError as error:
            num_gpus = self._num_chunks
            split = split_batch(batch_size, num_gpus)
            if split.smallest > 1:
                raise
            # BatchNorm cannot train on a chunk of one sample: a batch a little larger is as good a measure
            self.failed[batch_size] = error
            return self._stepper.measure(2 * num_gpus if split.largest == 1 else batch_size + 1)

    def largest(self, first: int) -> int:
        """Return the largest batch that fits, and that the model can run."""
        self._lanes = self._from_three(first)
        found = self._largest(first)
        if self._lanes is not None and not self._is_answer(found):
            self._lanes = None
            found = self._largest(max(1, min(found, LIMIT // 2)))
        while found and found in self.failed:  # it would fit, but the model cannot run it
            found -= 1
            self.room(found)
        return found

    def _largest(self, first: int) -> int:
        found = largest_that_fits(self.room, first)
        return found if found == LIMIT else past_steps(self.room, found, self.reach())

    def _is_answer(self, largest: int) -> bool:
        """Make the steps of an answer and of its successor, and return whether both agree."""
        if largest == LIMIT:
            return False
        fits = not largest or self._room_of(largest) >= 0
        return fits and self._room_of(largest + 1) < 0

    def _from_three(self, first: int) -> LanesAt | None:
        """Make three steps, and return all lanes at any batch size; None if their sizes lie on no line."""
        least = max(first, _LEAST_TRACED * self._num_chunks)
        batches = (least, 2 * least, 2 * least - 1)
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
        return lambda size: [at(rows, size) for at, rows in zip(fits, self._rows(size), strict=True)]

    @property
    def _num_chunks(self) -> int:
        config = self._case.config
        return len(config.ordinals or ()) if config.strategy == "dp" else 1

    def _rows(self, batch_size: int) -> list[int]:
        """Return the rows of each virtual GPU; of ranks, those of the one that is made."""
        config = self._case.config
        rows = [batch_size] * len(self._stepper.gpus)
        if config.strategy != "dp":
            return rows
        rows = [0] * len(rows)
        ordinals = config.ordinals or ()
        for ordinal, chunk in zip(ordinals, split_batch(batch_size, len(ordinals)).rows(), strict=True):
            rows[ordinal] += chunk
        return rows

    def room(self, batch_size: int) -> int:
        """Return the room left on the GPU that has least."""
        if self._lanes is None or batch_size in self._known:
            return self._room_of(batch_size)
        if batch_size not in self._booked:
            gpus = self._stepper.booked(self._lanes(batch_size))
            self._booked[batch_size] = min(gpu.spare_bytes or 0 for gpu in gpus)
        return self._booked[batch_size]

    def _room_of(self, batch_size: int) -> int:
        return min(gpu.spare_bytes or 0 for gpu in self.measured(batch_size).gpus)

    def reach(self) -> int:
        """Return how many more rows may need less memory: reserved memory grows in segments."""
        fewest, most = min(self._known), max(self._known)
        grown = self._peak(most) - self._peak(fewest)
        return min(_MOST_ROWS, SEGMENTS * (most - fewest) // max(1, grown)) if most > fewest else 1

    def _peak(self, batch_size: int) -> int:
        return max(gpu.peak_bytes for gpu in self._known[batch_size].gpus)

    def fit(self, largest: int) -> Fit:
        """Return the GPU that limits the batch, in which phase, and remedies: of the next larger batch."""
        found = self.measured(largest + 1)
        gpu = min(found.gpus, key=lambda gpu: gpu.spare_bytes or 0)
        num_predictions = len(self._known)
        remedies = find_remedies(self._case, self._stepper, found.batch_size, found)
        missing = max(0, -(gpu.spare_bytes or 0))
        margin = self._margin(gpu)
        return Fit(largest, gpu.device, gpu.phase, missing, num_predictions, remedies, margin)

    def _margin(self, gpu: GpuMemory) -> int:
        """Return how many rows the method's usual error is worth on a GPU."""
        fewest, most = min(self._known), max(self._known)
        needs = [
            next(each.needed_bytes for each in self._known[size].gpus if each.device == gpu.device)
            for size in (fewest, most)
        ]
        if needs[0] >= needs[1]:
            return 0
        return round(MEDIAN_ERROR * gpu.needed_bytes * (most - fewest) / (needs[1] - needs[0]))

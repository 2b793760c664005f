"""`largest_batch`: the largest batch that fits every GPU, the GPU that limits it, and remedies."""

import os
from dataclasses import replace
from typing import Unpack

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.config.fields import Config
from dpdemo.config.load import Keys, expect_strategy, resolve, showing_keys
from dpdemo.errors import RunError, UsageError
from dpdemo.memory.hardware import Hardware, Sizes
from dpdemo.memory.inputs import Given
from dpdemo.memory.predict import Progress, batches_of, opened_stepper, report_of
from dpdemo.memory.remedies import find_remedies
from dpdemo.memory.search import LIMIT, largest_that_fits, past_steps
from dpdemo.memory.steps import Measured, Stepper
from dpdemo.models.libraries import InputSizes
from dpdemo.results.memory import MemoryReport
from dpdemo.results.memorydata import Fit, Training

SEGMENTS = 40 * 2**20
"""The larger of two sizes may need this much less: two of the segments that small requests share."""
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
        overrides: config keys that win over `config`.

    Returns:
        The step with the largest batch that fits, and the gain of each remedy in the next larger step.

    Raises:
        UsageError: if the config, a size or the inputs are not valid, or the model cannot be built.
        RunError: if the model fails, or needs numbers.

    """
    if gpu_memory is None and gpu is None:
        raise UsageError(
            "expected the memory of each GPU, got none",
            key="gpu_memory",
            hint="name it or the card: {gpu_memory=24GiB}, or {gpu=A100-80GB}",
        )
    checked = expect_strategy(resolve(config, overrides))
    say = progress or (lambda _: None)
    hardware = Hardware(gpu_memory, gpu, reserve)
    batches = batches_of(checked, inputs, input_sizes, numbers=numbers)
    with opened_stepper(checked, training or Training(), hardware, batches, say) as stepper:
        search = _Search(checked, stepper, say)
        largest = largest_that_fits(search.room, stepper.batches.batch_size)
        if largest == LIMIT:
            raise RunError(
                f"expected memory that grows with the batch, got room for {LIMIT} samples",
                key="gpu_memory",
                hint="do the model's inputs have a batch dimension? see {input=}",
            )
        largest = past_steps(search.room, largest, search.reach())
        while largest and largest in search.failed:  # it would fit, but the model cannot run it
            largest -= 1
            search.room(largest)
        report = report_of(checked, stepper, search.measured(largest or 1))
        return replace(report, fit=search.fit(largest))


class _Search:
    """Predicts steps once for each batch size, and remembers them."""

    def __init__(self, config: Config, stepper: Stepper, say: Progress) -> None:
        self._config = config
        self._stepper = stepper
        self._say = say
        self._known: dict[int, Measured] = {}
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
            num_gpus = len(self._config.ordinals or ())
            split = split_batch(batch_size, num_gpus)
            if split.smallest > 1:
                raise
            # BatchNorm cannot train on a chunk of one sample: a batch a little larger is as good a measure
            self.failed[batch_size] = error
            return self._stepper.measure(2 * num_gpus if split.largest == 1 else batch_size + 1)

    def room(self, batch_size: int) -> int:
        """Return the room left on the GPU that has least."""
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
        remedies = find_remedies(self._stepper, found.batch_size, found, self._say)
        missing = max(0, -(gpu.spare_bytes or 0))
        return Fit(largest, gpu.device, gpu.phase, missing, num_predictions, remedies)

"""`largest_batch`: the largest batch with which every GPU fits, which GPU binds it, and what would help."""

import os
from dataclasses import replace
from typing import Any

from dpdemo.config import Config
from dpdemo.errors import RunError, UsageError
from dpdemo.footprint.inputs import Given
from dpdemo.footprint.prediction import Progress, Sizes, num_chosen, opened_stepper, report_of
from dpdemo.footprint.remedies import find_remedies
from dpdemo.footprint.search import LIMIT, largest_that_fits
from dpdemo.footprint.steps import Measured, Stepper
from dpdemo.memoryreport import Fit, MemoryReport, Training
from dpdemo.prediction import resolve
from dpdemo.split import split_batch


def largest_batch(
    config: Config | str | os.PathLike[str] | None = None,
    *,
    gpu_memory: Sizes,
    training: Training | None = None,
    inputs: Given | str = None,
    progress: Progress | None = None,
    **overrides: Any,
) -> MemoryReport:
    """Find the largest batch with which every GPU fits, by predicting steps on both sides of it.

    The arguments are those of `predict_memory`; the search begins at the config's batch size.

    Raises:
        UsageError: if the config, a size or the inputs are not valid, or the model cannot be built.
        RunError: if the model fails, or needs numbers, of which there are none.

    """
    if gpu_memory is None:
        raise UsageError("expected the memory of a GPU such as 24GiB, got none - at `gpu_memory`")
    checked = resolve(config, overrides)
    say = progress or (lambda _: None)
    with opened_stepper(checked, training or Training(), gpu_memory, inputs, say) as stepper:
        search = _Search(checked, stepper, say)
        largest = largest_that_fits(search.room, stepper.batches.batch_size)
        if largest == LIMIT:
            raise RunError(
                f"expected memory that grows with the batch, got room for {LIMIT} samples - at `gpu_memory`",
                hint="do the model's inputs have a batch dimension? see --input",
            )
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
        """Return what a step of this size showed, or would show of the next size that the model can run."""
        if batch_size not in self._known:
            self._say(f"one step with a batch of {batch_size}")
            self._known[batch_size] = self._measure(batch_size)
        return self._known[batch_size]

    def _measure(self, batch_size: int) -> Measured:
        try:
            return self._stepper.measure(batch_size)
        except RunError as error:
            num_gpus = num_chosen(self._config)
            split = split_batch(batch_size, num_gpus)
            if split.last_chunk > 1:
                raise
            # BatchNorm cannot train on a chunk of one sample: a batch a little larger is as good a measure
            self.failed[batch_size] = error
            return self._stepper.measure(2 * num_gpus if split.chunk == 1 else batch_size + 1)

    def room(self, batch_size: int) -> int:
        """Return the room left on the GPU that has least."""
        return min(gpu.spare_bytes or 0 for gpu in self.measured(batch_size).gpus)

    def fit(self, largest: int) -> Fit:
        """Say which GPU binds, when, and what would help."""
        following = largest + 1
        found = self.measured(following)
        binding = min(range(len(found.gpus)), key=lambda index: found.gpus[index].spare_bytes or 0)
        gpu = found.gpus[binding]
        remedies = find_remedies(self._stepper, following, found, binding, self._say)
        return Fit(
            largest=largest,
            binding=gpu.device,
            phase=gpu.phase,
            missing_bytes=max(0, -(gpu.spare_bytes or 0)),
            num_predictions=len(self._known),
            remedies=remedies,
        )

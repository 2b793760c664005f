"""A model on virtual GPUs without numbers, for one number of GPUs after another. This imports torch."""

from collections.abc import Callable
from contextlib import ExitStack

from dpdemo.config.load import make_config
from dpdemo.memory.hardware import Hardware
from dpdemo.memory.predict import batches_of, opened_stepper
from dpdemo.memory.steps import Stepper
from dpdemo.models.libraries import InputSizes
from dpdemo.reports.speedup import Workload
from dpdemo.sweeping.questions import Need, Question
from dpdemo.timing.observe import opened_observer


class OpenedModel:
    """The model of a question, open for as long as the number of GPUs stays the same."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._open = ExitStack()
        self._gpus = 0
        self._stepper: Stepper | None = None
        self._observe: Callable[[int], Workload] | None = None

    def close(self) -> None:
        """Close the model."""
        self._open.close()
        self._stepper = self._observe = None

    def need(self, gpus: int, batch_size: int) -> Need:
        """Predict what the GPUs need for a step with a batch.

        Raises:
            UsageError: if the model cannot be built, or the inputs are not valid.
            RunError: if the model cannot run the batch.

        """
        if self._stepper is None or gpus != self._gpus:
            self.close()
            self._stepper, self._gpus = self._opened_stepper(gpus), gpus
        found = self._stepper.measure(batch_size).gpus
        return Need(max(gpu.needed_bytes for gpu in found), max(gpu.least_bytes for gpu in found))

    def workload(self, rows: int) -> Workload:
        """Predict what a step copies and launches per GPU; it raises as `need` does."""
        if self._observe is None:
            asked = self._question
            opened = opened_observer(asked.config, asked.inputs, loss=asked.training.loss)
            self._observe = self._open.enter_context(opened)
        return self._observe(rows)

    def _opened_stepper(self, gpus: int) -> Stepper:
        asked = self._question
        sizes = InputSizes(asked.seq_len, asked.image_size)
        config = make_config({**asked.config.model_dump(exclude_unset=True), "gpus": gpus})
        batches = batches_of(config, asked.inputs, sizes, numbers=asked.numbers)
        hardware = Hardware(None, asked.card, asked.reserve)
        return self._open.enter_context(
            opened_stepper(config, asked.training, hardware, batches, lambda _: None)
        )

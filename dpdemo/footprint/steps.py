"""One step as a training loop makes it, at any batch size, and what each GPU held at its fullest moment.

A step is: gradients cleared, the batch copied to its device, forward, loss, backward, optimizer. An optimizer
has its state from the first step on, so it is the second one that counts.
"""

import contextlib
import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dpdemo.errors import DpdemoError, RunError
from dpdemo.failure import take_apart
from dpdemo.footprint.inputs import BatchMaker, shapes_of
from dpdemo.footprint.losses import Loss, make_loss, resolve_loss
from dpdemo.footprint.phases import note_phases, phase
from dpdemo.footprint.workspaces import workspace_bytes
from dpdemo.memoryreport import PARTS, GpuMemory, Training
from dpdemo.models import BuiltModel
from dpdemo.report import Shape
from dpdemo.virtual import UnsupportedOpError, VirtualGpus

_OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


_WITH_NUMBERS = "`dpdemo exec --gpu-memory 24GiB` runs a program with its numbers"


@dataclass(frozen=True)
class Measured:
    """What one step showed."""

    batch_size: int
    inputs: tuple[tuple[str, Shape], ...]
    loss: str
    gpus: tuple[GpuMemory, ...]


class Stepper:
    """Makes steps of one model on open virtual GPUs."""

    def __init__(
        self,
        gpus: VirtualGpus,
        built: BuiltModel,
        batches: BatchMaker,
        training: Training,
        capacities: Sequence[int | None],
    ) -> None:
        self.gpus = gpus
        self.built = built
        self.training = training
        self.batches = batches
        self._capacities = capacities
        self.loss: Loss = make_loss(training.loss)
        self._optimizer = self._make_optimizer()
        self._is_warm = self._optimizer is None
        note_phases(gpus, built.model)

    def _make_optimizer(self) -> torch.optim.Optimizer | None:
        make = _OPTIMIZERS.get(self.training.optimizer)
        trained = [parameter for parameter in self.built.model.parameters() if parameter.requires_grad]
        return None if make is None or self.training.inference or not trained else make(trained)

    def measure(self, batch_size: int) -> Measured:
        """Make a step, and say what each GPU held.

        Raises:
            RunError: if the model fails; it holds the user's own frames.

        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a model's warnings are about its numbers
                inputs, loss = self._warm_step(batch_size)
        except DpdemoError:
            raise
        except Exception as error:
            raise RunError(
                f"expected the model to take a batch of {batch_size}, got {take_apart(error)}",
                hint=_WITH_NUMBERS if _lacks_numbers(error) else "",
            ) from error
        gpus = tuple(self._memory_of(index) for index in range(len(self.gpus)))
        return Measured(batch_size, inputs, loss, gpus)

    def forget_optimizer_state(self) -> None:
        """Free what the optimizer keeps between steps; it is made again before the next step that counts."""
        if self._optimizer is not None:
            self._optimizer.state.clear()
            self._is_warm = False

    def _warm_step(self, batch_size: int) -> tuple[tuple[tuple[str, Shape], ...], str]:
        """Make a step as all but the first are, and let the ledger see that one alone."""
        if not self._is_warm and not self.training.inference:
            self._step(batch_size)
            self._is_warm = True
        gc.collect()
        self.gpus.reset_peaks()
        return self._step(batch_size)

    def _step(self, batch_size: int) -> tuple[tuple[tuple[str, Shape], ...], str]:
        self.gpus.phase = "between steps"
        self.built.model.zero_grad()
        self.built.model.train(not self.training.inference)
        with phase(self.gpus, "forward"), _without_fast_path():
            args, kwargs = self.batches.make(batch_size, self.built.input_device)
            shapes = shapes_of((args, kwargs))
            with torch.set_grad_enabled(not self.training.inference), self._autocast():
                output = self.built.model(*args, **kwargs)
                if self.training.inference:
                    return shapes, "none"
                with phase(self.gpus, "loss"):
                    name = resolve_loss(self.training.loss, output)
                    loss = self.loss(output)
        with phase(self.gpus, "backward"):
            torch.autograd.backward(loss)
        if self._optimizer is not None:
            with phase(self.gpus, "optimizer step"):
                self._optimizer.step()
        return shapes, name

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        return torch.autocast("cuda") if self.training.amp else contextlib.nullcontext()

    def _memory_of(self, index: int) -> GpuMemory:
        parts = self.gpus.peak_by_kind(index)
        is_used = any(parts.values())
        workspaces = workspace_bytes(inference=self.training.inference) if is_used else 0
        parts["library workspaces"] = workspaces
        return GpuMemory(
            device=f"cuda:{index}",
            parts=tuple(parts[part] for part in PARTS),
            phase=self.gpus.peak_phase(index),  # type: ignore[arg-type] # the phases are set above
            capacity_bytes=self._capacities[index],
        )


@contextlib.contextmanager
def _without_fast_path() -> Iterator[None]:
    """Run a transformer's layers one by one in evaluation too: nobody sees what the one operator holds."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _lacks_numbers(error: BaseException) -> bool:
    """Tell whether an operator needed numbers, also where DataParallel raised its error anew."""
    return isinstance(error, UnsupportedOpError) or UnsupportedOpError.__name__ in str(error)


def num_parameters(model: nn.Module) -> int:
    """Count a model's numbers; tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())

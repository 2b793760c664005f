"""One training step at any batch size, and the memory of each GPU at its fullest moment.

A step clears the gradients, copies the batch to its device, and runs forward, loss, backward and optimizer.
An optimizer has its state from the first step on, so the second one counts.
"""

import contextlib
import gc
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from dpdemo.errors import DpdemoError, RunError, UsageError
from dpdemo.memory.hardware import Hardware
from dpdemo.memory.inputs import BatchMaker, shapes_of
from dpdemo.models.calling import users_model
from dpdemo.models.failure import take_apart
from dpdemo.models.losses import Loss, make_loss, resolve_loss
from dpdemo.models.modules import BuiltModel
from dpdemo.results.batches import Shape
from dpdemo.results.memorydata import PARTS, GpuMemory, Phase, Training
from dpdemo.virtual import UnsupportedOpError, VirtualGpus
from dpdemo.virtual.blocks import rounded
from dpdemo.watching.seam import around
from dpdemo.watching.tree import tensors_in

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=0.1),
    "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adafactor": torch.optim.Adafactor,
}

_PHASES: dict[str, Phase] = {
    "scatter_kwargs": "scatter",
    "replicate": "replicate",
    "parallel_apply": "forward",
    "gather": "gather",
}

_WITH_NUMBERS = (
    "{numbers=true} predicts with real numbers, and takes their memory on this machine; "
    "or keep what decides out of the step"
)
_IN_A_REPLICA = (
    "a replica of the genuine DataParallel raised it; if the model takes these inputs on one GPU ({gpus=1}), "
    "replicas on real GPUs raise it too, and `dpdemo check` says what they lack"
)
_WITHOUT_PARAMETERS = (
    "the model asks parameters() for its dtype or device, and replicas have none, on real GPUs too (DP308): "
    "DataParallel cannot run it; {gpus=1} predicts it on one GPU"
)
_SAY_WHAT = (
    "no input was given, and the first layer does not show one: the model got one tensor of "
    "input_size numbers per row; give {input=32x3x224x224}, or {inputs=pkg.mod:function}"
)


@dataclass(frozen=True)
class Measured:
    """The memory of one step."""

    batch_size: int
    inputs: tuple[tuple[str, Shape], ...]
    loss: str
    gpus: tuple[GpuMemory, ...]
    output_bytes: tuple[int, ...] = ()
    """The bytes of the model's output on each GPU."""


class Stepper:
    """Makes steps of one model on open virtual GPUs."""

    def __init__(  # noqa: PLR0913, PLR0917 - all that a step depends on
        self,
        gpus: VirtualGpus,
        built: BuiltModel,
        batches: BatchMaker,
        training: Training,
        capacities: Sequence[int | None],
        hardware: Hardware | None = None,
    ) -> None:
        self.gpus = gpus
        self.built = built
        self.training = training
        self.batches = batches
        self._capacities = capacities
        self.hardware = hardware or Hardware()
        self._recorder = gpus.recorder
        gpus.count_scratch(self.hardware.scratch_capability)
        self.loss: Loss = make_loss(training.loss)
        self._output_bytes: tuple[int, ...] = ()
        self.optimizer = self._make_optimizer()

    def _make_optimizer(self) -> torch.optim.Optimizer | None:
        make = _OPTIMIZERS.get(self.training.optimizer)
        trained = [parameter for parameter in self.built.model.parameters() if parameter.requires_grad]
        if make is None or self.training.inference or not trained:
            return None
        return make(trained, fused=True) if self.training.fused else make(trained)

    def measure(self, batch_size: int) -> Measured:
        """Make a step and return the memory of each GPU.

        Raises:
            RunError: if the model fails; it holds the user's own frames.

        """
        try:
            with warnings.catch_warnings(), users_model():
                warnings.simplefilter("ignore")  # a model's warnings are about its numbers
                inputs, loss = self._warm_step(batch_size)
        except DpdemoError:
            raise
        except Exception as error:
            raise self._refusal(batch_size, error) from error
        gpus = tuple(self._memory_of(index) for index in range(len(self.gpus)))
        return Measured(batch_size, inputs, loss, gpus, self._output_bytes)

    def step_again(self, batch_size: int) -> None:
        """Make another step after a measured one, for callers that count something other than memory."""
        with warnings.catch_warnings(), users_model():
            warnings.simplefilter("ignore")
            self._step(batch_size)

    def _refusal(self, batch_size: int, error: Exception) -> DpdemoError:
        failure = take_apart(error)
        said = f"expected the model to take a batch of {batch_size}, got {failure}"
        if _lacks_numbers(error):
            return RunError(said, hint=_WITH_NUMBERS)
        if self.batches.is_guessed:
            return UsageError(said, hint=_SAY_WHAT)
        if failure.replica is None:
            return RunError(said)
        is_for_parameters = failure.type == "StopIteration"  # of `next(self.parameters())`
        return RunError(said, hint=_WITHOUT_PARAMETERS if is_for_parameters else _IN_A_REPLICA)

    def forget_optimizer_state(self) -> None:
        """Free the state of the optimizer; the first step of the next measurement makes it."""
        if self.optimizer is not None:
            self.optimizer.state.clear()

    def _warm_step(self, batch_size: int) -> tuple[tuple[tuple[str, Shape], ...], str]:
        """Make two steps, and let the ledger see the second alone."""
        self.forget_optimizer_state()
        self.built.model.zero_grad()
        self._restart_recorder()  # each prediction is that of a program that has just begun
        leaves_something = self.optimizer is not None or self.training.zero_grad != "before"
        if leaves_something and not self.training.inference:
            self._step(batch_size)
        gc.collect()
        self.gpus.reset_peaks()
        return self._step(batch_size)

    def _restart_recorder(self) -> None:
        self._recorder.restart()
        for index in range(len(self.gpus)):
            for size in self._workspaces:
                self._recorder.hold(index, rounded(size))

    @property
    def _workspaces(self) -> list[int]:
        return self.hardware.workspaces(inference=self.training.inference)

    def _step(self, batch_size: int) -> tuple[tuple[tuple[str, Shape], ...], str]:
        self.gpus.phase = "between steps"
        if self.training.zero_grad != "after":
            self._zero_grad()
        self.built.model.train(not self.training.inference)
        with _noting_phases(self.gpus), _phase(self.gpus, "forward"), _without_fast_path():
            args, kwargs = self.batches.make(batch_size, self.built.input_device)
            shapes = shapes_of((args, kwargs))
            with torch.set_grad_enabled(not self.training.inference), self._autocast():
                output = self.built.model(*args, **kwargs)
                if self.training.inference:
                    return shapes, "none"
                if self.training.zero_grad == "after":
                    self._zero_grad()
                with _phase(self.gpus, "loss"):
                    name = resolve_loss(self.training.loss, output)
                    loss = self.loss(output)
                self._output_bytes = self._bytes_of(output)
                if self.training.frees_output:
                    del output
        with _phase(self.gpus, "backward"):
            torch.autograd.backward(loss)
        if self.optimizer is not None:
            with _phase(self.gpus, "optimizer step"):
                self.optimizer.step()
        return shapes, name

    def _bytes_of(self, output: object) -> tuple[int, ...]:
        """Return the bytes that a model's output takes on each GPU; views of one storage count once."""
        found = [0] * len(self.gpus)
        storages = {id(each): each for each in map(torch.Tensor.untyped_storage, tensors_in(output))}
        for storage in storages.values():
            if storage.device.type == "cuda":
                found[storage.device.index] += rounded(storage.nbytes())
        return tuple(found)

    def _zero_grad(self) -> None:
        self.built.model.zero_grad(set_to_none=self.training.zero_grad != "to-zero")

    def _autocast(self) -> contextlib.AbstractContextManager[object]:
        return torch.autocast("cuda") if self.training.amp else contextlib.nullcontext()

    def _memory_of(self, index: int) -> GpuMemory:
        parts, most = self.gpus.peak_by_kind(index), self.gpus.most_by_kind(index)
        is_used = any(parts.values())
        workspaces = self._workspaces if is_used else []
        parts["library workspaces"] = most["library workspaces"] = sum(workspaces)
        return GpuMemory(
            device=f"cuda:{index}",
            parts=tuple(parts[part] for part in PARTS),
            phase=self.gpus.peak_phase(index),  # type: ignore[arg-type] # the phases are set above
            capacity_bytes=self._capacities[index],
            largest=tuple(most[part] for part in PARTS),
            reserved_bytes=self._recorder.allocators[index].reserved_bytes if is_used else 0,
            context_bytes=self.hardware.reserve_bytes if is_used else 0,
        )


@contextlib.contextmanager
def _phase(gpus: VirtualGpus, name: Phase) -> Iterator[None]:
    """Record a phase beside the ledger's peaks for the length of a `with` block."""
    before, gpus.phase = gpus.phase, name
    try:
        yield
    finally:
        gpus.phase = before


def _noting_phases(gpus: VirtualGpus) -> contextlib.AbstractContextManager[None]:
    """Record the steps of every DataParallel as phases."""

    def note(name: Phase, proceed: Callable[..., object], *args: object, **kwargs: object) -> object:
        with _phase(gpus, name):
            return proceed(*args, **kwargs)

    return around(**{step: partial(note, name) for step, name in _PHASES.items()})


@contextlib.contextmanager
def _without_fast_path() -> Iterator[None]:
    """Run a transformer's layers one by one in evaluation too: the fused operator hides its temporaries."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _lacks_numbers(error: BaseException) -> bool:
    """Return whether an operator needed numbers, also where DataParallel raised its error again."""
    return isinstance(error, UnsupportedOpError) or UnsupportedOpError.__name__ in str(error)


def num_parameters(model: nn.Module) -> int:
    """Count a model's numbers; tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())

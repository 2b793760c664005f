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
from itertools import pairwise

import torch
from torch import nn

from dpdemo.calls.seam import around
from dpdemo.calls.tree import tensors_in
from dpdemo.errors import DpdemoError, RunError, UsageError
from dpdemo.memory.again import Again
from dpdemo.memory.alike import Alike
from dpdemo.memory.books import Books
from dpdemo.memory.hardware import Hardware
from dpdemo.memory.inputs import BatchMaker, shapes_of
from dpdemo.memory.trace import RESET, Lane, lanes_of
from dpdemo.models.calling import users_model
from dpdemo.models.failure import take_apart
from dpdemo.models.losses import Loss, make_loss, resolve_loss
from dpdemo.models.modules import BuiltModel
from dpdemo.results.batches import Shape
from dpdemo.results.memorydata import GpuMemory, Phase, Training
from dpdemo.virtual import UnsupportedOpError, VirtualGpus
from dpdemo.virtual.blocks import rounded

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
_SPARE_PARAMETERS = (
    "the model has parameters that no output depends on: name a function that returns "
    "DistributedDataParallel(model, device_ids=[ordinal], find_unused_parameters=True) in place of the model"
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
    lanes: tuple[Lane, ...] = ()


_Traced = tuple[tuple[tuple[str, Shape], ...], str, list[Lane]]


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
        self.hardware = hardware or Hardware()
        self.books = Books(capacities, self.hardware, is_inference=training.inference)
        self._log = gpus.log()
        self.alike = Alike(gpus, self._log, built.model)
        self.alike.is_off = batches.has_numbers
        self._marks: list[int] = []
        gpus.count_scratch(self.hardware.scratch_capability)
        self.loss: Loss = make_loss(training.loss)
        self._output_bytes: tuple[int, ...] = ()
        self.optimizer = self._make_optimizer()
        self._again = Again(self._log, built.model)

    def _make_optimizer(self) -> torch.optim.Optimizer | None:
        make = _OPTIMIZERS.get(self.training.optimizer)
        trained = [parameter for parameter in self.built.model.parameters() if parameter.requires_grad]
        if make is None or self.training.inference or not trained:
            return None
        return make(trained, fused=True) if self.training.fused else make(trained)

    def measure(self, batch_size: int, before: Sequence[Lane] | None = None) -> Measured:
        """Make a step and return the memory of each GPU; it may add to gradients of a step with known lanes.

        Raises:
            RunError: if the model fails; it holds the user's own frames.

        """
        try:
            with warnings.catch_warnings(), users_model():
                warnings.simplefilter("ignore")  # a model's warnings are about its numbers
                found = self._added(batch_size, before) if before else None
                found = found or self.alike.tried(lambda: self._traced(batch_size))
                inputs, loss, lanes = found or self._traced(batch_size)
        except DpdemoError:
            raise
        except Exception as error:
            raise self._refusal(batch_size, error) from error
        return Measured(batch_size, inputs, loss, self.books.gpus(lanes), self._output_bytes, tuple(lanes))

    @property
    def books_twice(self) -> bool:
        """Whether the first pass may count as the second, but for buckets that are made again before it."""
        wrapper = self.built.wrapper
        if isinstance(wrapper, nn.parallel.DistributedDataParallel):
            is_own = self.built.split is wrapper  # it may have hooks that allocate by bucket
            may_be = not (is_own or wrapper.gradient_as_bucket_view)
        else:
            may_be = isinstance(wrapper, nn.DataParallel)
        return may_be and self.training.zero_grad == "before"

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
        if "`find_unused_parameters=True`" in str(error):
            return RunError(said, hint=_SPARE_PARAMETERS)
        if self.batches.is_guessed:
            return UsageError(said, hint=_SAY_WHAT)
        if failure.replica is None:
            return RunError(said)
        is_for_parameters = failure.type == "StopIteration"  # of `next(self.parameters())`
        return RunError(said, hint=_WITHOUT_PARAMETERS if is_for_parameters else _IN_A_REPLICA)

    def _traced(self, batch_size: int) -> _Traced:
        """Make the step that counts, which is the second, and return its lanes.

        Each prediction is that of a program that has just begun.
        """
        self._forget()
        self._marks = [len(self._log)]
        self.alike.begin()
        if self.books_twice and self.optimizer is not None and not self.training.inference:
            return self._pass_and_steps(batch_size)
        script: tuple[int, ...] = (RESET, 1)
        if not (self.training.inference or (self.optimizer is None and self.training.zero_grad == "before")):
            self._step(batch_size)
            gc.collect()
            self._mark()
            script = (1, RESET, 2)
        found = self._step(batch_size)
        self._mark()
        return *found, self._lanes(script)

    def _forget(self) -> None:
        if self.optimizer is not None:
            self.optimizer.state.clear()
        self.built.model.zero_grad()
        gc.collect()
        self._again.drop_dead()

    def _pass_and_steps(self, batch_size: int) -> _Traced:
        """Make one pass and two steps of the optimizer: the log of the pass is booked twice, if it may be."""
        found = self._step(batch_size, self._update_twice)  # parts 1 to 4: batch, pass, each step
        self._mark()  # 5: the loop's variables go
        gc.collect()
        self._mark()
        self._again.keep_pass(self._marks)
        self._zero_grad()
        self._mark()
        self._make_buckets_again()
        self._mark()
        lanes = self._lanes((1, 2, 3, 5, 6, RESET, 7, 1, 8, 2, 4))
        if all(lane.is_closed((1, 2, 3, 5, 6, 7)) for lane in lanes):
            return *found, lanes
        self._again.clear()
        if self._again.is_used:  # the optimizer made no step
            return self._traced(batch_size)
        found = self._step(batch_size, self._update)
        self._mark()
        return *found, self._lanes((1, 2, 3, 4, 5, 6, RESET, 7, 9, 8, 10))

    def _added(self, batch_size: int, before: Sequence[Lane]) -> _Traced | None:
        """Make a step that adds to the gradients of one before; None if that one's log does not serve."""
        self._forget()
        self._marks = self._again.put_pass_back()
        found = self.alike.tried(lambda: self._second(batch_size)) if self._marks else None
        if found is None:
            return None
        lanes = [lane.after(first) for lane, first in zip(found[2], before, strict=True)]
        return None if None in lanes else (*found[:2], [*filter(None, lanes)])

    def _second(self, batch_size: int) -> _Traced:
        self.alike.begin()
        found = self._step(batch_size, lambda: self._log.extend(self._again.updates[1]))
        self._mark()
        return *found, self._lanes((1, 2, 3, 5, 6, RESET, 7, 8))

    def _make_buckets_again(self) -> None:
        """Rebuild the buckets, as DistributedDataParallel does before its second forward pass."""
        wrapper = self.built.wrapper
        if isinstance(wrapper, nn.parallel.DistributedDataParallel):
            with _phase(self.gpus, "forward"):
                wrapper.reducer._rebuild_buckets()  # noqa: SLF001 - as `_pre_forward` does

    def _mark(self) -> None:
        self._marks.append(len(self._log))

    def _lanes(self, script: tuple[int, ...]) -> list[Lane]:
        cuts = [*pairwise(self._marks)]
        return self.alike.lanes(lanes_of(self._log, cuts, script, len(self.gpus)))

    def _update(self) -> None:
        if self.optimizer is not None:
            with _phase(self.gpus, "optimizer step"):
                self.optimizer.step()

    def _update_twice(self) -> None:
        self._mark()
        if self._again.knows_updates():
            for events in self._again.updates:
                self._log += events
                self._mark()
            return
        for _ in range(2):
            self._update()
            self._mark()
        self._again.keep_updates(self._marks)

    def _step(
        self, batch_size: int, update: Callable[[], None] | None = None
    ) -> tuple[tuple[tuple[str, Shape], ...], str]:
        self.gpus.phase = "between steps"
        if self.training.zero_grad != "after":
            self._zero_grad()
        self.built.model.train(not self.training.inference)
        with _noting_phases(self.gpus), _phase(self.gpus, "forward"), _without_fast_path():
            args, kwargs = self.batches.make(batch_size, self.built.input_device)
            shapes = shapes_of((args, kwargs))
            if update is not None:
                self._mark()
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
        (update or self._update)()
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

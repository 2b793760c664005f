"""The bytes and operators of any model, from a genuine step of the genuine DataParallel on two virtual GPUs.

Their tensors have sizes and no numbers, as for `dpdemo memory`. What the second GPU is sent, and what it
sends back, is the same for each further one; each has the rows of one GPU's batch. The operators are counted
in one more forward and backward of the bare model, since DataParallel runs its replicas' in threads.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from dpdemo.config.fields import Config
from dpdemo.config.load import make_config
from dpdemo.memory.case import Progress, batches_of, opened_stepper
from dpdemo.memory.hardware import Hardware
from dpdemo.memory.inputs import Given
from dpdemo.memory.steps import Stepper, num_parameters
from dpdemo.results.memorydata import Training
from dpdemo.results.speedupdata import Launches, Workload

_UNSAFE_VIEW = "aten::_unsafe_view"  # a view of what nothing else holds
Moved = Mapping[tuple[str, int | None, int | None], int]


def observe_workload(
    config: Config, inputs: Given | str = None, *, loss: str = "auto", progress: Progress | None = None
) -> Workload:
    """Return what one GPU's share of a step weighs, from a step on two virtual GPUs without numbers.

    Args:
        config: its batch is that of one GPU.
        inputs: as for `predict_memory`.
        loss: as in a `Training`; it says what travels back over the gathered outputs.
        progress: called with what is under way.

    Raises:
        UsageError: if the config or the inputs are not valid, or the model cannot be built.
        RunError: if the model fails, or needs numbers, of which there are none.

    """
    say = progress or (lambda _: None)
    pair = make_config({**config.values(), "gpus": 2, "output_device": None})
    training = Training(optimizer="sgd", loss=loss)
    with opened_stepper(pair, training, Hardware(), batches_of(pair, inputs), say) as stepper:
        rows = stepper.batches.batch_size
        say(f"one step with {rows} rows on each of two GPUs")
        stepper.measure(2 * rows)
        before = stepper.gpus.bytes_moved_in
        stepper.step_again(2 * rows)
        moved = _since(before, stepper.gpus.bytes_moved_in)
        say("counting operators")
        launches = _count(stepper, rows) if stepper.built.model is stepper.built.wrapper else None
        return _workload(config.model, rows, stepper.built.split, moved, launches)


def _since(before: Moved, after: Moved) -> Moved:
    return {key: num_bytes - before.get(key, 0) for key, num_bytes in after.items()}


def _workload(name: str, rows: int, module: nn.Module, moved: Moved, launches: Launches | None) -> Workload:
    out, back = (0, 1), (1, 0)

    def between(phases: Iterable[str], pair: tuple[int, int]) -> int:
        return sum(moved.get((phase, *pair), 0) for phase in phases)

    buffers = _num_bytes(module.buffers())
    gradients = _num_bytes(parameter for parameter in module.parameters() if parameter.requires_grad)
    return Workload(
        name=name,
        rows=rows,
        num_parameters=num_parameters(module),
        parameter_bytes=between(("replicate",), out) - buffers,
        gradient_bytes=gradients,
        buffer_bytes=buffers,
        input_bytes=between(("scatter",), out),
        output_bytes=between(("gather",), back),
        output_gradient_bytes=between(("backward",), out),
        input_gradient_bytes=between(("backward",), back) - gradients,
        launches=launches,
    )


def _num_bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operators of this thread that compute something: a view only looks elsewhere."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.number = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep PyTorch from importing torch._dynamo at the first operator, as `VirtualGpuMode` does."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        del types
        self.number += not func.is_view and func.name() != _UNSAFE_VIEW
        return func(*args, **(kwargs or {}))


def _count(stepper: Stepper, rows: int) -> Launches:
    """Count what one GPU launches with its batch, in forward and backward, and what replicate handles."""
    module = stepper.built.split
    counter = _Counter()
    args, kwargs = stepper.batches.make(rows, torch.device("cuda", 0))
    with counter:
        output = module(*args, **kwargs)
    forward = counter.number
    loss = stepper.loss(output)
    with counter:
        torch.autograd.backward(loss)
    tensors = [*module.parameters(), *module.buffers()]
    return Launches(
        forward=forward,
        backward=counter.number - forward,
        modules=sum(1 for _ in module.modules()),
        tensors=len(tensors),
    )

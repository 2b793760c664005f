"""The bytes and operators of a model, from a genuine step of the genuine DataParallel on two virtual GPUs.

Their tensors have sizes and no numbers, as for `dpdemo memory`. Each GPU has the rows of the whole batch: one
with a share of them is sent, and sends back, that share. The operators are counted in one more forward and
backward of the bare model, since DataParallel runs its replicas' in threads.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dpdemo.config.fields import Config
from dpdemo.config.load import make_config
from dpdemo.memory.case import Progress, batches_of, opened_stepper
from dpdemo.memory.hardware import Hardware
from dpdemo.memory.inputs import Given
from dpdemo.memory.steps import Stepper, num_parameters
from dpdemo.results.memorydata import Training
from dpdemo.results.speedup import Launches, Workload

_UNSAFE_VIEW = "aten::_unsafe_view"  # a view of what nothing else holds


def observe_workload(
    config: Config, inputs: Given | str = None, *, loss: str = "auto", progress: Progress | None = None
) -> Workload:
    """Return the bytes and operators of a step with the whole batch of a config.

    Args:
        config: its batch is the one that several GPUs share.
        inputs: as for `predict_memory`.
        loss: as in a `Training`; its gradients are copied back over the gathered outputs.
        progress: called with the name of each stage.

    Raises:
        UsageError: if the config or the inputs are not valid, or the model cannot be built.
        RunError: if the model fails, or needs the numbers of its tensors.

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
        moved = {key: now - before.get(key, 0) for key, now in stepper.gpus.bytes_moved_in.items()}
        say("counting operators")
        module = stepper.built.split
        buffers = _num_bytes(module.buffers())
        gradients = _num_bytes(parameter for parameter in module.parameters() if parameter.requires_grad)
        return Workload(
            name=config.model,
            rows=rows,
            num_parameters=num_parameters(module),
            parameter_bytes=moved.get(("replicate", 0, 1), 0) - buffers,
            gradient_bytes=gradients,
            buffer_bytes=buffers,
            input_bytes=moved.get(("scatter", 0, 1), 0),
            output_bytes=moved.get(("gather", 1, 0), 0),
            output_gradient_bytes=moved.get(("backward", 0, 1), 0),
            input_gradient_bytes=moved.get(("backward", 1, 0), 0) - gradients,
            launches=_count(stepper, rows) if stepper.built.model is stepper.built.wrapper else None,
        )


def _num_bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operators of this thread that compute something: a view computes nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.number = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep PyTorch from importing torch._dynamo at the first operator, as `VirtualGpuMode` does."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
        del types
        self.number += not func.is_view and func.name() != _UNSAFE_VIEW
        return func(*args, **(kwargs or {}))


def _count(stepper: Stepper, rows: int) -> Launches:
    """Count the operators of a forward and a backward, and the modules and tensors for replicate."""
    module, counter = stepper.built.split, _Counter()
    args, kwargs = stepper.batches.make(rows, torch.device("cuda", 0))
    with counter:
        output = module(*args, **kwargs)
    forward = counter.number
    loss = stepper.loss(output)
    with counter:
        torch.autograd.backward(loss)
    tensors = [*module.parameters(), *module.buffers()]
    return Launches(forward, counter.number - forward, len([*module.modules()]), len(tensors))

"""`predict_memory`: the memory of each GPU in one step at the config's batch size."""

import os
from typing import Unpack

from dpdemo.config.fields import Config
from dpdemo.config.load import Keys, expect_strategy, resolve, showing_keys
from dpdemo.memory.case import STRATEGIES, Case, Progress
from dpdemo.memory.hardware import Hardware, Sizes
from dpdemo.memory.inputs import Given
from dpdemo.memory.reporting import report_of, with_all_ranks
from dpdemo.models.libraries import InputSizes
from dpdemo.results.memory import MemoryReport
from dpdemo.results.memorydata import Training
from dpdemo.results.wrapping import Wrapping


@showing_keys
def predict_memory(  # noqa: PLR0913 - all that a step depends on
    config: Config | str | os.PathLike[str] | None = None,
    *,
    training: Training | None = None,
    gpu_memory: Sizes = None,
    gpu: str | None = None,
    reserve: str | int | None = None,
    inputs: Given | str = None,
    input_sizes: InputSizes | None = None,
    progress: Progress | None = None,
    numbers: bool = False,
    wrapping: Wrapping | None = None,
    **overrides: Unpack[Keys],
) -> MemoryReport:
    """Predict the memory of each GPU at its fullest moment in one step, without allocating any.

    Args:
        config: a Config, or the path of a YAML file; the tutorial's values if left out.
        training: the optimizer, the loss and other settings; AdamW if left out.
        gpu_memory: the capacity of each GPU, as "24GiB" or in bytes, or a list with one for each.
        gpu: the name of the GPUs' card, such as "A100-80GB": its memory, unless `gpu_memory` says otherwise,
            and the workspaces of CUDA's libraries on it.
        reserve: memory kept free for the CUDA context and other libraries, as "1GiB"; 600 MiB if left out.
        inputs: for a model of your own: shapes such as `["32x128", "mask=32x128:bool"]`, or a function of the
            batch size (or its name, `pkg.mod:function`); of one tensor [batch_size, input_size] if left out.
        input_sizes: how long texts and how large images are, for a model of a library.
        progress: called with a description of each piece of work.
        numbers: compute with real numbers, for models whose shapes depend on them; this takes their memory
            on this machine.
        wrapping: blocks, checkpoints and other settings of the strategy; PyTorch's defaults if left out.
        overrides: config keys that win over `config`, such as `gpus=4` or `batch_size=256`.

    Returns:
        The bytes of each GPU at its fullest moment, by purpose.

    Raises:
        UsageError: if the config, a size or the inputs are not valid, or the model cannot be built.
        RunError: if the model fails, or needs numbers.

    """
    case = Case(
        config=expect_strategy(resolve(config, overrides), STRATEGIES),
        training=training or Training(),
        hardware=Hardware(gpu_memory, gpu, reserve),
        inputs=inputs,
        input_sizes=input_sizes,
        numbers=numbers,
        wrapping=wrapping or Wrapping(),
        say=progress or (lambda _: None),
    )
    return predict(case)


def predict(case: Case) -> MemoryReport:
    """Predict the step of a case."""
    with case.opened() as stepper:
        rows = case.rows(stepper.batches.batch_size)
        shards = case.shards(stepper)  # a step may leave parameters whole
        case.say(f"one step with a batch of {rows}")
        found = report_of(case, stepper, stepper.measure(rows))
    return with_all_ranks(case, found, shards)

"""`predict_memory`: what each GPU holds in one step at the config's batch size."""

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch

from dpdemo.bytesize import capacities
from dpdemo.config import Config
from dpdemo.errors import UsageError
from dpdemo.footprint.inputs import BatchMaker, Given
from dpdemo.footprint.steps import Measured, Stepper, num_parameters
from dpdemo.memoryreport import MemoryReport, Training
from dpdemo.models import DTYPES, build
from dpdemo.prediction import resolve
from dpdemo.runner.dp import place
from dpdemo.runner.place import num_virtual
from dpdemo.runner.visible import chosen_devices
from dpdemo.split import split_batch
from dpdemo.usermodel import find_object
from dpdemo.virtual import VirtualGpuError, VirtualGpus, virtual_gpus

Sizes = str | int | Sequence[str | int] | None
Progress = Callable[[str], None]


def predict_memory(
    config: Config | str | os.PathLike[str] | None = None,
    *,
    training: Training | None = None,
    gpu_memory: Sizes = None,
    inputs: Given | str = None,
    progress: Progress | None = None,
    **overrides: Any,
) -> MemoryReport:
    """Foretell what each GPU holds at its fullest moment in one step, without memory.

    Args:
        config: a Config, or the path of a YAML file; the tutorial's values if left out.
        training: the optimizer, the loss and the like; AdamW if left out.
        gpu_memory: the capacity of each GPU, as "24GiB" or in bytes, or a list with one for each.
        inputs: for a model of your own: shapes such as `["32x128", "mask=32x128:bool"]`, or a function of the
            batch size (or its name, `pkg.mod:function`); of one tensor [batch_size, input_size] if left out.
        progress: called with what is under way.
        overrides: config keys that win over `config`, such as `gpus=4` or `batch_size=256`.

    Raises:
        UsageError: if the config, a size or the inputs are not valid, or the model cannot be built.
        RunError: if the model fails, or needs numbers, of which there are none.

    """
    checked = resolve(config, overrides)
    say = progress or (lambda _: None)
    with opened_stepper(checked, training or Training(), gpu_memory, inputs, say) as stepper:
        size = stepper.batches.batch_size
        say(f"one step with a batch of {size}")
        return report_of(checked, stepper, stepper.measure(size))


@contextmanager
def opened_stepper(
    config: Config, training: Training, gpu_memory: Sizes, inputs: Given | str, say: Progress
) -> Iterator[Stepper]:
    """Build the model on virtual GPUs without numbers, for the length of a `with` block.

    Raises:
        UsageError: if the config, a size or the inputs are not valid, or the model cannot be built.

    """
    count = num_virtual(config)
    sizes = _capacities(config, gpu_memory, count)
    given = find_object(inputs, "option `--inputs`") if isinstance(inputs, str) else inputs
    batches = BatchMaker(config, given)
    say("building the model")
    with torch.random.fork_rng(devices=[]), _virtual_gpus(count) as gpus:
        built = build(config, place(config, chosen_devices(config)), batches.load_model)
        if not config.is_builtin and config.dtype != "float32":
            built.model.to(DTYPES[config.dtype])
        with _known_objects_kept():
            yield Stepper(gpus, built, batches, training, sizes)


@contextmanager
def _known_objects_kept() -> Iterator[None]:
    """Keep what is there now out of garbage collections, which each step begins with: PyTorch's is much."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _virtual_gpus(count: int) -> Iterator[VirtualGpus]:
    with ExitStack() as block:
        try:
            gpus = block.enter_context(virtual_gpus(count, storage="meta"))
        except VirtualGpuError as error:
            raise UsageError(f"expected to open {count} virtual GPUs, got an error: {error}") from None
        yield gpus


def _capacities(config: Config, gpu_memory: Sizes, count: int) -> list[int | None]:
    """Return a capacity for each virtual GPU; the sizes given are those of the GPUs that are asked for."""
    ordinals = list(dict.fromkeys(_ordinals(config)))
    try:
        sizes = capacities(gpu_memory, len(ordinals))
    except ValueError as error:
        raise UsageError(f"{error} - at option `--gpu-memory`") from None
    by_ordinal = dict(zip(ordinals, sizes, strict=True))
    return [by_ordinal.get(index, sizes[0]) for index in range(count)]


def _ordinals(config: Config) -> tuple[int, ...]:
    return tuple(range(config.gpus)) if isinstance(config.gpus, int) else tuple(config.gpus or ())  # type: ignore[arg-type]


def num_chosen(config: Config) -> int:
    """Count the GPUs that the batch is split over."""
    return len(_ordinals(config))


def report_of(config: Config, stepper: Stepper, measured: Measured) -> MemoryReport:
    """Put together what a step showed of the GPUs that were asked for; one that is named twice is one GPU."""
    ordinals = _ordinals(config)
    rows = dict.fromkeys(ordinals, 0)
    chunks = split_batch(measured.batch_size, len(ordinals)).sizes()
    for ordinal, chunk in zip(ordinals, chunks, strict=False):
        rows[ordinal] += chunk
    if config.output_device is not None:
        rows.setdefault(config.output_device, 0)
    return MemoryReport(
        config=config,
        training=replace(stepper.training, loss=measured.loss),
        batch_size=measured.batch_size,
        num_parameters=num_parameters(stepper.built.model),
        inputs=measured.inputs,
        chunks=tuple(rows.values()),
        gpus=tuple(measured.gpus[ordinal] for ordinal in rows),
    )

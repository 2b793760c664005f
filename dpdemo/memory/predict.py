"""`predict_memory`: the memory of each GPU in one step at the config's batch size."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Unpack

import torch

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.collecting import no_collections
from dpdemo.config.fields import Config
from dpdemo.config.load import Keys, expect_strategy, resolve, showing_keys
from dpdemo.config.ranks import num_gpus
from dpdemo.errors import about
from dpdemo.memory.hardware import Hardware, Sizes
from dpdemo.memory.inputs import BatchMaker, Given
from dpdemo.memory.leftovers import caches_emptied
from dpdemo.memory.steps import Measured, Stepper, num_parameters
from dpdemo.memory.uncompiled import not_compiling
from dpdemo.models.libraries import InputSizes
from dpdemo.models.modules import build
from dpdemo.models.user import find_object
from dpdemo.results.memory import MemoryReport
from dpdemo.results.memorydata import Training
from dpdemo.running.devices import chosen_devices, num_virtual
from dpdemo.running.dp import place
from dpdemo.virtual import virtual_gpus

Progress = Callable[[str], None]


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
        overrides: config keys that win over `config`, such as `gpus=4` or `batch_size=256`.

    Returns:
        The bytes of each GPU at its fullest moment, by purpose.

    Raises:
        UsageError: if the config, a size or the inputs are not valid, or the model cannot be built.
        RunError: if the model fails, or needs numbers.

    """
    checked = expect_strategy(resolve(config, overrides))
    say = progress or (lambda _: None)
    hardware = Hardware(gpu_memory, gpu, reserve)
    batches = batches_of(checked, inputs, input_sizes, numbers=numbers)
    with opened_stepper(checked, training or Training(), hardware, batches, say) as stepper:
        size = stepper.batches.batch_size
        say(f"one step with a batch of {size}")
        return report_of(checked, stepper, stepper.measure(size))


@contextmanager
def opened_stepper(
    config: Config,
    training: Training,
    hardware: Hardware,
    batches: BatchMaker,
    say: Progress,
) -> Iterator[Stepper]:
    """Build the model on virtual GPUs without numbers, for the length of a `with` block.

    Raises:
        UsageError: if the config, a size or the inputs are not valid, or the model cannot be built.

    """
    count = num_virtual(config)
    sizes = _capacities(config, hardware, count)
    say("building the model")
    with ExitStack() as block:
        with no_collections():
            for context in (not_compiling(), caches_emptied(), torch.random.fork_rng(devices=[])):
                block.enter_context(context)
            opening = virtual_gpus(count, storage="cpu" if batches.has_numbers else "meta")
            gpus = block.enter_context(opening)
            block.callback(gc.unfreeze)  # before the caches are looked for
            gpus.recorder  # noqa: B018 - asking for it makes it follow what is built
            built = build(config, place(config, chosen_devices(config)), batches.load_model)
            if not config.is_builtin and config.dtype != "float32":
                built.model.to(getattr(torch, config.dtype))
        yield Stepper(gpus, built, batches, training, sizes, hardware)


def batches_of(
    config: Config, inputs: Given | str, sizes: InputSizes | None = None, *, numbers: bool = False
) -> BatchMaker:
    """Return the maker of the batches that a user asks for.

    Raises:
        UsageError: if their function cannot be imported, or a shape cannot be read.

    """
    with about("inputs"):
        given = find_object(inputs) if isinstance(inputs, str) else inputs
    return BatchMaker(config, given, sizes, has_numbers=numbers)


def _capacities(config: Config, hardware: Hardware, count: int) -> list[int | None]:
    """Return the capacity of each virtual GPU; the given sizes are those of the chosen GPUs."""
    sizes = hardware.capacities(num_gpus(config))
    by_ordinal = dict(zip(dict.fromkeys(config.ordinals or ()), sizes, strict=True))
    return [by_ordinal.get(index, sizes[0]) for index in range(count)]


def report_of(config: Config, stepper: Stepper, measured: Measured) -> MemoryReport:
    """Report a step for the chosen GPUs; one that is named twice is one GPU."""
    ordinals = config.ordinals or ()
    rows = dict.fromkeys(ordinals, 0)
    found = split_batch(measured.batch_size, len(ordinals)).rows()
    for ordinal, chunk in zip(ordinals, found, strict=True):
        rows[ordinal] += chunk
    if config.output_device is not None:
        rows.setdefault(config.output_device, 0)
    return MemoryReport(
        config=config,
        training=replace(stepper.training, loss=measured.loss),
        batch_size=measured.batch_size,
        num_parameters=num_parameters(stepper.built.model),
        inputs=measured.inputs,
        gpus=tuple(replace(measured.gpus[ordinal], rows=number) for ordinal, number in rows.items()),
        card=stepper.hardware.found.name if stepper.hardware.found else "",
        notes=_assumed(stepper.batches),
    )


def _assumed(batches: BatchMaker) -> tuple[str, ...]:
    notes = {
        f"--input {batches.worked_out}, inferred from the first layer.": batches.worked_out,
        "Taken as a model that was called before it was wrapped, as one of transformers must be: its "
        "replicas would put in hooks that they share, and may fail (DP317).": batches.has_new_hooks,
    }
    return tuple(note for note, is_given in notes.items() if is_given)

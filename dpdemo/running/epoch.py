"""The loop over an epoch that every strategy shares."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from dpdemo.config.catalogue import MODELS, VOCABULARY
from dpdemo.config.fields import Config
from dpdemo.errors import RunError
from dpdemo.models.calling import users_model
from dpdemo.models.failure import take_apart
from dpdemo.models.modules import DTYPES, BuiltModel
from dpdemo.models.noise import BatchLoader, NoiseDataset, epoch_order
from dpdemo.reports.devices import Devices
from dpdemo.reports.split import BatchGroup
from dpdemo.running.interrupts import EpochInterrupted
from dpdemo.watching.epoch import EpochRecorder, ReplicaObserver

Progress = Callable[[int, int], None]
"""Called with (batches done, batches in all), at most ten times per second."""

_PROGRESS_SECONDS = 0.1
_SMALL_BATCH_NUMBERS = 1 << 15
"""ATen's own limit under which it does not split an operation (`ATen/TensorIterator.h`, GRAIN_SIZE)."""


@dataclass(frozen=True)
class Watch:
    """Callbacks of an epoch: `progress`, and `learn`, which gets each output for DDP's backward."""

    progress: Progress | None = None
    learn: Callable[[object], None] | None = None


def make_loader(config: Config) -> BatchLoader:
    """Make the epoch's batches for a config."""
    order = epoch_order(config.data_size, config.seed, shuffle=config.shuffle)
    return BatchLoader(
        make_dataset(config), config.data_size, config.batch_size, config.dim, config.drop_last, order
    )


def make_dataset(config: Config) -> NoiseDataset:
    """Make the epoch's samples for a config."""
    model = MODELS.get(config.model)
    sample = model.input(config.input_size, config.output_size) if model else (config.input_size,)
    vocabulary = VOCABULARY if model and model.reads_cpu_input else 0
    return NoiseDataset(sample, config.seed, DTYPES[config.dtype], vocabulary)


def run_epoch(
    built: BuiltModel, config: Config, devices: Devices, loader: BatchLoader, watch: Watch
) -> tuple[BatchGroup, ...]:
    """Call the model on every batch of a loader and return what was observed.

    Raises:
        RunError: if the model fails, with the user's own frames.
        EpochInterrupted: on Ctrl-C, with the batches done so far.

    """
    recorder = EpochRecorder(devices, config.dim)
    observer = ReplicaObserver(built.wrapper, built.split)
    try:
        try:
            with threads_for(loader), users_model():
                _call_batches(built, loader, watch, observer, recorder)
        except Exception as error:
            number = recorder.num_batches + 1
            raise RunError(
                f"expected the model `{config.model}` to take batch {number}, got {take_apart(error)}",
                hint="" if number > 1 or config.is_builtin else _other_samples(loader.dataset),
            ) from error
    except KeyboardInterrupt:  # also one that comes while an exception is taken apart
        raise EpochInterrupted(recorder.groups()) from None
    finally:
        observer.close()
    return recorder.groups()


def _other_samples(dataset: NoiseDataset) -> str:
    dtype = str(dataset.dtype).removeprefix("torch.")
    return f"each sample is {list(dataset.sample)} of {dtype}; input_size and dtype choose others"


@contextmanager
def threads_for(loader: BatchLoader) -> Iterator[None]:
    """Compute small batches on one thread.

    Waking a second core for a few hundred numbers gains nothing, and where another program keeps that core
    busy, it makes each of torch's operations wait for it: a small batch then takes 30 times as long.
    """
    before = torch.get_num_threads()
    if loader.batch_size * math.prod(loader.dataset.sample) < _SMALL_BATCH_NUMBERS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _call_batches(
    built: BuiltModel, loader: BatchLoader, watch: Watch, observer: ReplicaObserver, recorder: EpochRecorder
) -> None:
    model, device = built.model, built.input_device
    moves = device.type != "cpu"  # where batches are made
    due = time.monotonic() + _PROGRESS_SECONDS
    for batch in loader:
        if watch.progress is not None and time.monotonic() > due:
            watch.progress(recorder.num_batches, len(loader))
            due = time.monotonic() + _PROGRESS_SECONDS
        inputs = batch.to(device) if moves else batch
        output = model(inputs)
        if watch.learn is not None:
            watch.learn(output)
        outside = observer.outside(inputs, output)
        recorder.add(observer.take(), outside)

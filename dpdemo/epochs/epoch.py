"""The loop over an epoch that every strategy shares."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from dpdemo.calls.epoch import EpochRecorder, ReplicaObserver
from dpdemo.config.catalogue import MODELS, VOCABULARY
from dpdemo.config.fields import Config
from dpdemo.config.load import make_config
from dpdemo.epochs.interrupts import EpochInterrupted
from dpdemo.errors import RunError
from dpdemo.models.calling import users_model
from dpdemo.models.failure import take_apart
from dpdemo.models.inputs import Arguments, Batches, to_device
from dpdemo.models.modules import BuiltModel
from dpdemo.models.noise import BatchLoader, NoiseDataset, epoch_order
from dpdemo.results.batches import BatchGroup
from dpdemo.results.devices import Devices

Progress = Callable[[int, int], None]
"""Called with (batches done, batches in all), at most ten times per second."""

_PROGRESS_SECONDS = 0.1
_SMALL_BATCH_NUMBERS = 1 << 15
"""ATen's own limit under which it does not split an operation (`ATen/TensorIterator.h`, GRAIN_SIZE)."""


@dataclass(frozen=True)
class Callbacks:
    """Callbacks of an epoch: `progress`, and `learn`, which gets each output for DDP's backward."""

    progress: Progress | None = None
    learn: Callable[[object], None] | None = None


@dataclass(frozen=True)
class OwnLoader:
    """Yields the batches of an epoch from the inputs that a user's factory returned with its model."""

    batches: Batches
    data_size: int
    drop_last: bool = False
    order: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self._sizes())

    def __iter__(self) -> Iterator[Arguments]:
        return map(self.batches.arguments, self._sizes())

    def _sizes(self) -> Sequence[int]:
        full, rest = divmod(self.data_size, self.batches.size)
        return [self.batches.size] * full + [rest] * (rest > 0 and not self.drop_last)


Loader = BatchLoader | OwnLoader


def with_own_size(config: Config, built: BuiltModel) -> Config:
    """Take the batch size of the inputs that came with a model, unless the user chose another.

    An epoch has at least one such batch, unless the user chose its size too.

    Raises:
        UsageError: if other keys of the config do not fit the batch size.

    """
    if built.inputs is None or "batch_size" in config.given:
        return config
    size = Batches.of(built.inputs, None, config.batch_size, config.dim).size
    sizes = {"batch_size": size, "data_size": max(config.data_size, size)}
    return make_config({**sizes, **config.values()})


def make_loader(config: Config, built: BuiltModel | None = None) -> Loader:
    """Make the epoch's batches for a config."""
    order = epoch_order(config.data_size, config.seed, shuffle=config.shuffle)
    return load(config, built, config.data_size, config.batch_size, order)


def load(
    config: Config, built: BuiltModel | None, num_samples: int, batch_size: int, order: torch.Tensor | None
) -> Loader:
    """Make batches of so many samples: of the inputs that came with the model, or of noise."""
    if built is not None and built.inputs is not None:
        batches = Batches.of(built.inputs, batch_size, batch_size, config.dim)
        return OwnLoader(batches, num_samples, config.drop_last, order)
    return BatchLoader(make_dataset(config), num_samples, batch_size, config.dim, config.drop_last, order)


def make_dataset(config: Config) -> NoiseDataset:
    """Make the epoch's samples for a config."""
    model = MODELS.get(config.model)
    sample = model.input(config.input_size, config.output_size) if model else (config.input_size,)
    vocabulary = VOCABULARY if model and model.reads_cpu_input else 0
    return NoiseDataset(sample, config.seed, getattr(torch, config.dtype), vocabulary)


def run_epoch(
    built: BuiltModel, config: Config, devices: Devices, loader: Loader, watch: Callbacks
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
                hint=_other_samples(loader) if number == 1 and not config.is_builtin else "",
            ) from error
    except KeyboardInterrupt:  # also one that comes while an exception is taken apart
        raise EpochInterrupted(recorder.groups()) from None
    finally:
        observer.close()
    return recorder.groups()


def _other_samples(loader: Loader) -> str:
    if isinstance(loader, OwnLoader):
        return ""
    dataset = loader.dataset
    dtype = str(dataset.dtype).removeprefix("torch.")
    return f"each sample is {list(dataset.sample)} of {dtype}; input_size and dtype choose others"


@contextmanager
def threads_for(loader: Loader) -> Iterator[None]:
    """Compute small batches on one thread.

    Waking a second core for a few hundred numbers gains nothing, and where another program keeps that core
    busy, it makes each of torch's operations wait for it: a small batch then takes 30 times as long.
    """
    before = torch.get_num_threads()
    if isinstance(loader, BatchLoader):
        numbers = loader.batch_size * math.prod(loader.dataset.sample)
        torch.set_num_threads(1 if numbers < _SMALL_BATCH_NUMBERS else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _call_batches(
    built: BuiltModel, loader: Loader, watch: Callbacks, observer: ReplicaObserver, recorder: EpochRecorder
) -> None:
    model, device = built.model, built.input_device
    moves = device.type != "cpu"  # where noise is made
    due = time.monotonic() + _PROGRESS_SECONDS
    for batch in loader:
        if watch.progress is not None and time.monotonic() > due:
            watch.progress(recorder.num_batches, len(loader))
            due = time.monotonic() + _PROGRESS_SECONDS
        if isinstance(batch, torch.Tensor):
            inputs: tuple[object, ...] = (batch.to(device) if moves else batch,)
            output = model(*inputs)
        else:
            args, kwargs = to_device(batch, device)
            inputs = (*args, *kwargs.values())
            output = model(*args, **kwargs)
        if watch.learn is not None:
            watch.learn(output)
        outside = observer.outside(inputs, output)
        recorder.add(observer.take(), outside)

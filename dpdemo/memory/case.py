"""A case: all that a prediction depends on, and the model that is built for it."""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from dpdemo.collecting import no_collections
from dpdemo.config.fields import Config
from dpdemo.config.ranks import num_gpus, ranks_per_node
from dpdemo.epochs.devices import chosen_devices, num_virtual
from dpdemo.epochs.dp import place
from dpdemo.errors import about
from dpdemo.memory.hardware import Hardware
from dpdemo.memory.inputs import BatchMaker, Given
from dpdemo.memory.leftovers import caches_emptied
from dpdemo.memory.ranks import build_rank, enter_rank, num_ranks, prepare, shards_of
from dpdemo.memory.steps import Stepper
from dpdemo.memory.uncompiled import not_compiling
from dpdemo.models.libraries import InputSizes
from dpdemo.models.modules import BuiltModel, build
from dpdemo.models.user import find_object
from dpdemo.results.memorydata import Training
from dpdemo.results.wrapping import Wrapping
from dpdemo.virtual import virtual_gpus

Progress = Callable[[str], None]
STRATEGIES = ("dp", "ddp", "fsdp2")


@dataclass(frozen=True)
class Case:
    """All that a prediction depends on."""

    config: Config
    training: Training
    hardware: Hardware
    inputs: Given | str = None
    input_sizes: InputSizes | None = None
    numbers: bool = False
    wrapping: Wrapping = field(default_factory=Wrapping)
    say: Progress = lambda _: None
    shares_batch: bool = False
    """Whether ranks share the batch, as DataParallel's GPUs do; else each has one of its own."""

    def __post_init__(self) -> None:
        self.wrapping.expect_effect((self.config.strategy,))

    def opened(self, rank: int = 0) -> AbstractContextManager[Stepper]:
        """Build the model of a rank, or DataParallel's, for the length of a `with` block."""
        batches = batches_of(self.config, self.inputs, self.input_sizes, numbers=self.numbers)
        return opened_stepper(
            self.config, self.training, self.hardware, batches, self.say, wrapping=self.wrapping, rank=rank
        )

    def rows(self, batch_size: int) -> int:
        """Return the rows of a step: the whole batch under DataParallel, else those of a rank."""
        config = self.config
        if config.strategy == "dp" or not (self.shares_batch or config.batch_size_is == "global"):
            return batch_size
        return -(-batch_size // num_ranks(config))

    def shards(self, stepper: Stepper) -> list[tuple[int, ...]]:
        """List the shards of each rank; nothing under DataParallel."""
        if self.config.strategy == "dp":
            return []
        return shards_of(stepper.built.model, num_ranks(self.config))


@contextmanager
def opened_stepper(  # noqa: PLR0913 - all that a step depends on
    config: Config,
    training: Training,
    hardware: Hardware,
    batches: BatchMaker,
    say: Progress,
    *,
    wrapping: Wrapping | None = None,
    rank: int = 0,
) -> Iterator[Stepper]:
    """Build the model on virtual GPUs without numbers, for the length of a `with` block.

    Raises:
        UsageError: if the config, a size or the inputs are not valid, or the model cannot be built.

    """
    is_ranks = config.strategy != "dp"
    wrapping = wrapping or Wrapping()
    if is_ranks:
        num_ranks(config)  # refuses a single one
    count = (ranks_per_node(config) or 1) if is_ranks else num_virtual(config)
    sizes = hardware.capacities(count) if is_ranks else _capacities(config, hardware, count)
    say("building the model")
    with ExitStack() as block:
        with no_collections():
            for context in (not_compiling(), caches_emptied(), torch.random.fork_rng(devices=[])):
                block.enter_context(context)
            opening = virtual_gpus(count, storage="cpu" if batches.has_numbers else "meta")
            gpus = block.enter_context(opening)
            block.callback(gc.unfreeze)  # before the caches are looked for
            gpus.log()  # it has what is built from now on
            if is_ranks:
                enter_rank(block, config, rank)
                built = build_rank(config, wrapping, rank, batches.load_model, block)
                gc.collect()  # fully_shard leaves the whole parameters in cycles
            else:
                built = _build_parallel(config, wrapping, batches, block)
        yield Stepper(gpus, built, batches, training, sizes, hardware)


def _build_parallel(config: Config, wrapping: Wrapping, batches: BatchMaker, block: ExitStack) -> BuiltModel:
    """Build the model under DataParallel."""
    placement = place(config, chosen_devices(config))

    def wrapped(module: nn.Module) -> nn.Module:
        return placement.wrap(prepare(module, wrapping, placement.first, block))

    built = build(config, replace(placement, wrap=wrapped), batches.load_model)
    if not config.is_builtin and config.dtype != "float32":
        built.model.to(getattr(torch, config.dtype))
    return built


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

"""One rank of DistributedDataParallel or `fully_shard`: its model, its shards, its report."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from dpdemo.config.fields import Config
from dpdemo.config.ranks import ranks_per_node, world_size
from dpdemo.errors import UsageError
from dpdemo.memory.wrapping import checkpointed, fsdp1_refused, own_strategy, with_adapters, wrap
from dpdemo.models.modules import BuiltModel, Load, Placement, build
from dpdemo.results.devices import spans
from dpdemo.results.memorydata import GpuMemory
from dpdemo.results.wrapping import NAMES, Wrapping
from dpdemo.virtual.alone import one_of_many
from dpdemo.virtual.blocks import Kind
from dpdemo.virtual.kinds import mark_all


def num_ranks(config: Config) -> int:
    """Count the ranks of a config.

    Raises:
        UsageError: if there is only one, or their number is not known.

    """
    found = world_size(config)
    if found is None or config.gpus is None:
        raise UsageError("expected a number of ranks, got none", key="gpus", hint="say how many: {gpus=4}")
    if found < 2:
        raise UsageError(
            f"expected 2 ranks or more under {config.strategy}, got {found}",
            key="gpus",
            hint="leave {strategy=} out to predict one GPU",
        )
    return found


def enter_rank(block: ExitStack, config: Config, rank: int) -> None:
    """Make this process one rank, until `block` is left."""
    block.enter_context(one_of_many(num_ranks(config), rank, gpus_per_node=ranks_per_node(config)))


def build_rank(config: Config, wrapping: Wrapping, rank: int, load: Load, block: ExitStack) -> BuiltModel:
    """Build the model of a rank on its GPU and wrap it, unless the user's function did.

    Raises:
        UsageError: if the model cannot be built, or is wrapped otherwise.
        RunError: if PyTorch's wrapper refuses it.

    """
    ordinal = rank % (ranks_per_node(config) or 1)
    device = torch.device("cuda", ordinal)

    def wrapped(module: nn.Module) -> nn.Module:
        ready = prepare(module, wrapping, device, block)
        return wrap(ready, config.strategy, wrapping, ordinal)

    built = _built(config, wrapping, Placement(wrapped, device, device), load)
    mark_all(built.model.parameters(), Kind.PARAMETER)
    return built


def prepare(module: nn.Module, wrapping: Wrapping, device: torch.device, block: ExitStack) -> nn.Module:
    """Give a model its adapters and checkpoints, before it is wrapped; checkpoints end with `block`."""
    adapted = with_adapters(module, wrapping)
    if adapted is not module:
        adapted = adapted.to(device)
    block.enter_context(checkpointed(adapted, wrapping))
    return adapted


def _built(config: Config, wrapping: Wrapping, placement: Placement, load: Load) -> BuiltModel:
    if config.is_builtin:
        return build(config, placement, load)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        with fsdp1_refused():
            model, inputs = load(config.model, config)
        own = own_strategy(model)
        if own:
            _expect_own(own, model, config, wrapping)
            return BuiltModel(model, model, model, placement.first, inputs)
        if config.dtype != "float32":
            model = model.to(getattr(torch, config.dtype))
        model = model.to(placement.first)
        wrapper = placement.wrap(model)
        return BuiltModel(wrapper, model, wrapper, placement.first, inputs)


def _expect_own(own: str, model: nn.Module, config: Config, wrapping: Wrapping) -> None:
    """Check that a model which wraps itself does so as the user says.

    Raises:
        UsageError: if it does not, or settings of the wrapper would have no effect.

    """
    if own != config.strategy:
        message = f"expected a bare model or one in {NAMES[config.strategy]}, got one that is in {NAMES[own]}"
        hint = f"it is wrapped twice then: return the bare model, or {{strategy={own}}}"
        raise UsageError(message, key="strategy", hint=hint)
    if wrapping != Wrapping():
        raise UsageError(
            f"expected the settings of `{config.model}` itself, which wraps its model, got others beside it",
            key="model",
            hint="return the bare model, or leave the options of the wrapper out",
        )
    is_on_host = all(parameter.device.type == "cpu" for parameter in model.parameters())
    if own == "ddp" and is_on_host:
        message = "expected a model that was moved to its GPU before it was wrapped, got one on the CPU"
        raise UsageError(message, key="model", hint="call model.cuda() first, and name device_ids")


def shards_of(model: nn.Module, ranks: int) -> list[tuple[int, ...]]:
    """List each rank's share of every sharded size of a model: ranks with the same hold the same."""
    layouts: dict[tuple[Any, ...], None] = {}
    for parameter in model.parameters():
        placements: Sequence[Any] = getattr(parameter, "placements", ())
        for dim in sorted({each.dim for each in placements if each.is_shard()}):
            axes = [axis for axis, each in enumerate(placements) if each.is_shard(dim)]
            # fully_shard cuts what tensor parallelism has cut, though its axis is named first
            axes.sort(key=lambda axis: hasattr(placements[axis], "split_factor"))
            mesh = getattr(parameter, "device_mesh")  # noqa: B009 - mypy: of a DTensor, which alone has placements
            layouts[parameter.shape[dim], mesh, tuple(axes)] = None
    return [tuple(_share_on(rank, *layout) for layout in layouts) for rank in range(ranks)]


def _share_on(rank: int, size: int, mesh: Any, axes: Sequence[int]) -> int:
    """Return a rank's share of a size that is cut along some axes of a mesh."""
    places = _places(rank, mesh.mesh)
    lengths = mesh.mesh.shape
    for axis in axes:
        size = _share(size, places[axis], lengths[axis])
    return size


def _places(rank: int, ranks: torch.Tensor) -> list[int]:
    """Return a rank's place on each axis of a mesh; of one that has other ranks, on a mesh like it."""
    found = (ranks == rank).nonzero().tolist()
    if found:
        return list(found[0])
    starts = (0,) * ranks.ndim
    places = []
    for axis, length in enumerate(ranks.shape):
        second = (*starts[:axis], min(1, length - 1), *starts[axis + 1 :])
        step = int(ranks[second] - ranks[starts]) or 1
        places.append(rank // step % length)
    return places


def _share(size: int, rank: int, ranks: int) -> int:
    chunk = -(-size // ranks)  # as torch.chunk cuts
    return max(0, min(chunk, size - chunk * rank))


def gpus_of_ranks(
    config: Config, shards: Sequence[tuple[int, ...]], rows: int, first: GpuMemory, last: GpuMemory | None
) -> tuple[tuple[GpuMemory, ...], str]:
    """Return the GPU of each rank that is known, and a note on those between."""
    found, between = [], []
    for rank, shard in enumerate(shards):
        if shard == shards[0]:
            gpu = first
        elif last is not None and shard == shards[-1]:
            gpu = last
        else:
            between.append(rank)
            continue
        found.append(replace(gpu, device=device_of(config, rank), rows=rows))
    many = len(between) > 1
    note = (
        f"Rank{'s' if many else ''} {', '.join(spans(between))}: at most what rank 0 holds (uneven shards)."
    )
    return tuple(found), note if between else ""


def device_of(config: Config, rank: int) -> str:
    """Name a rank's GPU; with several nodes, the rank."""
    ordinals = config.ordinals or ()
    return f"cuda:{ordinals[rank]}" if config.nodes == 1 and ordinals else f"rank:{rank}"

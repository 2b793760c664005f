"""What the keys of a config mean under a strategy: how many ranks, and what batch each of them takes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dpdemo.errors import UsageError
from dpdemo.sampler import DistributedEpoch, distribute
from dpdemo.wording import at

if TYPE_CHECKING:
    from dpdemo.config import Config

OF_DDP_ALONE = ("nodes", "processes", "batch_size_is", "sampler_drop_last")
"""Keys that only DistributedDataParallel reads."""
TIMEOUT_SECONDS: float = 300
"""How long a rank waits for the others, unless it is told: at the rendezvous and in every exchange."""


def ranks_per_node(config: "Config") -> int | None:
    """Count the ranks of one node: one for each GPU, else `processes`, else one; None for `gpus: all`."""
    match config.gpus:
        case None:
            return config.processes or 1
        case "all":
            return config.processes
        case int(count):
            return count
        case ordinals:
            return len(ordinals)


def world_size(config: "Config") -> int | None:
    """Count the ranks on all nodes; None where only a machine can tell (`gpus: all`)."""
    ranks = ranks_per_node(config)
    return None if ranks is None else ranks * config.nodes


def batch_size_per_rank(config: "Config", num_ranks: int) -> int:
    """Give the rows of a full batch on one rank."""
    return config.batch_size // num_ranks if config.batch_size_is == "global" else config.batch_size


def distribute_epoch(config: "Config", num_ranks: int) -> DistributedEpoch:
    """Distribute the epoch of a DDP config over so many ranks."""
    return distribute(
        config.data_size,
        num_ranks,
        batch_size_per_rank(config, num_ranks),
        drop_last=config.drop_last,
        sampler_drop_last=config.sampler_drop_last,
    )


def check_strategy(config: "Config", where: Mapping[str, str]) -> None:
    """Check the keys that mean something to one strategy only.

    Raises:
        UsageError: if a key is set that the strategy does not read, or nothing could be run.

    """
    if config.strategy == "dp":
        _check_not_ddp(config, where)
        return
    if config.output_device is not None:
        raise UsageError(
            f"expected no output device under ddp, got {config.output_device} - {at('output_device', where)}",
            hint="DDP gathers nothing: each rank keeps its own outputs. Leave output_device out",
        )
    _check_ranks(config, where)
    num_ranks = world_size(config)
    if num_ranks is not None:
        _check_batch(config, num_ranks, where)


def _check_not_ddp(config: "Config", where: Mapping[str, str]) -> None:
    for key in OF_DDP_ALONE:
        default = type(config).model_fields[key].default
        if getattr(config, key) != default:
            raise UsageError(
                f"expected `{key}` only with the strategy ddp, got {getattr(config, key)} with dp - "
                f"{at(key, where)}",
                hint="add --strategy ddp (in a file, `strategy: ddp`)",
            )


def _check_ranks(config: "Config", where: Mapping[str, str]) -> None:
    if isinstance(config.gpus, tuple) and len(set(config.gpus)) < len(config.gpus):
        raise UsageError(
            f"expected a GPU of its own for each rank under ddp, got {list(config.gpus)} - "
            f"{at('gpus', where)}",
            hint="name each GPU once",
        )
    ranks = ranks_per_node(config)
    if config.processes is not None and ranks is not None and ranks != config.processes:
        raise UsageError(
            f"expected as many processes as GPUs, got {config.processes} and {ranks} - "
            f"{at('processes', where)}",
            hint="leave `processes` out: each of `gpus` has a rank; or leave `gpus` out to run on the CPU",
        )


def _check_batch(config: "Config", num_ranks: int, where: Mapping[str, str]) -> None:
    if config.batch_size_is == "global" and config.batch_size % num_ranks:
        below = config.batch_size // num_ranks * num_ranks
        sizes = " or ".join(str(size) for size in (below, below + num_ranks) if size)
        raise UsageError(
            f"expected a global batch_size that the {num_ranks} ranks divide, got {config.batch_size} - "
            f"{at('batch_size', where)}",
            hint=f"choose {sizes}, or give each rank its own: --batch-size-is per-rank",
        )
    epoch = distribute_epoch(config, num_ranks)
    if epoch.samples_per_rank == 0:
        raise UsageError(
            f"expected at least one sample a rank, got data_size {config.data_size} for {num_ranks} ranks "
            f"with sampler_drop_last, which leaves none - {at('sampler_drop_last', where)}",
            hint="leave sampler_drop_last out to repeat samples, or choose fewer ranks",
        )
    if epoch.drawn_per_rank == 0:
        raise UsageError(
            f"expected at least one full batch a rank, got {epoch.samples_per_rank} samples a rank < "
            f"{epoch.batch_size} a batch with drop_last, which leaves none - {at('drop_last', where)}",
            hint="leave drop_last out, or choose a smaller batch_size",
        )

"""GPUs, ranks and batches of a config: their number, and the rows of each."""

from datetime import timedelta
from typing import TYPE_CHECKING

from dpdemo.arithmetic.chunk import split_batch
from dpdemo.config.fields import Config
from dpdemo.errors import UsageError

if TYPE_CHECKING:
    from dpdemo.arithmetic.sampler import Epoch

OF_DDP_ALONE = ("nodes", "processes", "batch_size_is", "sampler_drop_last")
"""Keys that only DistributedDataParallel reads."""
TIMEOUT_SECONDS: float = 300
"""Default time that a rank waits for the others, at the rendezvous and in every exchange."""
_A_YEAR_IN_SECONDS = 365 * 24 * 3600


def as_wait(timeout: float) -> timedelta:
    """Turn seconds into how long a rank waits for the others.

    Raises:
        UsageError: for a number of seconds that is not above 0, or above a year.

    """
    if not 0 < timeout <= _A_YEAR_IN_SECONDS:
        raise UsageError(
            f"expected a number of seconds above 0, and of at most {_A_YEAR_IN_SECONDS} (a year), got "
            f"{timeout:g}",
            key="timeout",
        )
    return timedelta(seconds=timeout)


def num_gpus(config: Config) -> int:
    """Count the GPUs that DataParallel splits over; a GPU that is named twice is one GPU.

    Raises:
        UsageError: if the config does not say how many.

    """
    if config.gpus is None:
        raise UsageError("expected a number of GPUs, got none", key="gpus", hint="say how many: {gpus=4}")
    if config.gpus == "all":
        raise UsageError(
            "expected a count such as 4, got `all`",
            key="gpus",
            hint="say how many: real GPUs are not looked at",
        )
    return len(set(config.ordinals or ()))


def ranks_per_node(config: Config) -> int | None:
    """Count the ranks of one node: one for each GPU, else `processes`, else one; None for `gpus: all`."""
    if config.ordinals is not None:
        return len(config.ordinals)
    return config.processes or (None if config.gpus == "all" else 1)


def world_size(config: Config) -> int | None:
    """Count the ranks on all nodes; None where only a machine can tell (`gpus: all`)."""
    ranks = ranks_per_node(config)
    return None if ranks is None else ranks * config.nodes


def rows_per_rank(config: Config, num_ranks: int) -> int:
    """Count the rows of a rank's full batch, where all ranks have the same."""
    return config.batch_size // num_ranks if config.batch_size_is == "global" else config.batch_size


def distribute_epoch(config: Config, num_ranks: int) -> "Epoch":
    """Distribute the epoch of a config over so many ranks of DDP, or GPUs of DataParallel."""
    from dpdemo.arithmetic.sampler import Epoch, distribute  # most commands start without it

    if config.strategy == "dp":
        number, rest = divmod(config.data_size, config.batch_size)
        last = split_batch(rest, num_ranks) if rest and not config.drop_last else None
        return Epoch(config.data_size, split_batch(config.batch_size, num_ranks), number, last)
    return distribute(
        config.data_size,
        num_ranks,
        rows_per_rank(config, num_ranks),
        drop_last=config.drop_last,
        sampler_drop_last=config.sampler_drop_last,
    )

"""Checks of `weights` and `chunks` that take several keys."""

from dpdemo.arithmetic.weights import short_list
from dpdemo.config.fields import Config
from dpdemo.config.ranks import distribute_epoch, world_size
from dpdemo.config.weights import OF_WEIGHTS, expect_one_each, is_weighted, split_of
from dpdemo.errors import UsageError
from dpdemo.wording import Where, at, show


def check_weights(config: Config, where: Where) -> None:
    """Check the keys of unequal splits together.

    Raises:
        UsageError: naming the key that does not fit.

    """
    if config.weights is not None and config.chunks is not None:
        raise UsageError(
            f"expected `weights` or `chunks`, got both - {at('chunks', where)}",
            hint="weights are proportions for any batch, chunks the exact sizes of a full one",
        )
    if not is_weighted(config):
        return
    _check_numbers(config, where)
    num_devices = _count(config, where)
    if config.chunks is not None and sum(config.chunks) != config.batch_size:
        raise UsageError(
            f"expected chunks that add up to the batch size {config.batch_size}, got {sum(config.chunks)} "
            f"({short_list(config.chunks)}) - {at('chunks', where)}",
            hint=f"--batch-size {sum(config.chunks)}, or --weights, which are proportions for any batch",
        )
    if config.strategy == "ddp":
        _check_ranks(config, num_devices, where)


def _check_numbers(config: Config, where: Where) -> None:
    for key in OF_WEIGHTS:
        given = getattr(config, key)
        if given is not None and not any(given):
            raise UsageError(
                f"expected at least one of `{key}` above 0, got {short_list(given) or 'none'} - "
                f"{at(key, where)}",
                hint=f"--{key} 1,2,2 gives the first GPU half of what each of the others gets",
            )


def _count(config: Config, where: Where) -> int | None:
    """Count the devices and check that each has its number; None where only a machine can count them."""
    if config.strategy == "dp" and config.gpus is None:
        key = "weights" if config.chunks is None else "chunks"
        given = getattr(config, key)
        number = len(given)
        listed = ",".join(map(str, range(number)))
        raise UsageError(
            f"expected GPUs to share the batch, got none with {key} {show(given)} - {at(key, where)}",
            hint=f"name them: --gpus {listed if number <= 16 else f'0-{number - 1}'}",
        )
    if config.strategy == "ddp" and config.gpus is None and config.processes is None:
        return None  # torchrun may know
    num_devices = world_size(config)
    if num_devices is not None:
        expect_one_each(config, num_devices, where)
    return num_devices


def _check_ranks(config: Config, num_ranks: int | None, where: Where) -> None:
    """Check that each rank of DDP has a row: all of them take part in every all-reduce."""
    if config.batch_size_is == "per-rank":
        raise UsageError(
            f"expected the batch size of all ranks together, got one that is each rank's - "
            f"{at('batch_size_is', where)}",
            hint="leave `batch_size_is` out: with weights the batch size is global",
        )
    if num_ranks is None:
        return
    split = split_of(config, config.batch_size, num_ranks)
    if split.num_idle:
        key = "weights" if config.chunks is None else "chunks"
        idle = split.idle()[0]
        raise UsageError(
            f"expected at least a row for each rank in a batch of {config.batch_size}, got none for rank "
            f"{idle} - {at(key, where)}",
            hint="every rank takes part in the all-reduce: leave its GPU out, or give it more",
        )
    epoch = distribute_epoch(config, num_ranks)
    if not epoch.drawn:
        key = "drop_last" if config.drop_last else "sampler_drop_last"
        raise UsageError(
            f"expected at least one batch, got data_size {config.data_size} with `{key}`, which leaves none "
            f"of {config.batch_size} - {at(key, where)}",
            hint=f"leave {key} out, or choose a smaller batch_size",
        )

"""Unequal chunks: the config keys `weights` and `chunks`."""

from dpdemo.arithmetic.chunk import Split, split_batch
from dpdemo.arithmetic.weights import Weight, short_list, split_by_chunks, split_by_weights
from dpdemo.config.fields import Config
from dpdemo.errors import UsageError


def is_weighted(config: Config) -> bool:
    """Return whether a config cuts batches otherwise than torch does."""
    return config.weights is not None or config.chunks is not None


def weights_of(config: Config) -> tuple[Weight, ...] | None:
    """Return the weight of each device; None under torch's own rule. Chunks are weights of their own."""
    return config.weights if config.chunks is None else config.chunks


def weights_key(config: Config) -> str:
    """Return the key that has the weights: `weights` or `chunks`."""
    return "weights" if config.chunks is None else "chunks"


def split_of(config: Config, batch_size: int, num_devices: int) -> Split:
    """Split a batch of a config over its devices."""
    weights = weights_of(config)
    if weights is None:
        return split_batch(batch_size, num_devices)
    expect_one_each(config, num_devices)
    if config.chunks is not None:
        return split_by_chunks(batch_size, config.chunks)
    return split_by_weights(batch_size, weights)


def expect_one_each(config: Config, num_devices: int) -> None:
    """Check that there is a weight for each device.

    Raises:
        UsageError: if there are more, or fewer.

    """
    given = weights_of(config)
    if given is None or len(given) == num_devices:
        return
    key, is_ddp = weights_key(config), config.strategy == "ddp"
    raise UsageError(
        f"expected one of `{key}` for each of the {num_devices} {'rank' if is_ddp else 'GPU'}s, got "
        f"{len(given)} ({short_list(given)})",
        key=key,
        hint=f"start as many ranks: {{processes={len(given)}}}, or as many GPUs"
        if is_ddp
        else "0 is a weight, too: that GPU then has no replica",
    )

"""How a config cuts each batch: its keys `weights` and `chunks`."""

from collections.abc import Sequence
from typing import NoReturn

from dpdemo.arithmetic.chunk import Split, split_batch
from dpdemo.arithmetic.weights import Weight, short_list, split_by_chunks, split_by_weights
from dpdemo.config.fields import Config
from dpdemo.config.numbers import any_number
from dpdemo.errors import UsageError
from dpdemo.wording import Where, at, show_typed

OF_WEIGHTS = ("weights", "chunks")
"""Keys that cut a batch into unequal chunks."""


def is_weighted(config: Config) -> bool:
    """Return whether a config cuts batches otherwise than torch does."""
    return config.weights is not None or config.chunks is not None


def weights_of(config: Config) -> tuple[Weight, ...] | None:
    """Return the weight of each device; None under torch's own rule. Chunks are weights of their own."""
    return config.weights if config.chunks is None else config.chunks


def split_of(config: Config, batch_size: int, num_devices: int) -> Split:
    """Split a batch of a config over its devices."""
    weights = weights_of(config)
    if weights is None:
        return split_batch(batch_size, num_devices)
    expect_one_each(config, num_devices)
    if config.chunks is not None:
        return split_by_chunks(batch_size, config.chunks)
    return split_by_weights(batch_size, weights)


def expect_one_each(config: Config, num_devices: int, where: Where | None = None) -> None:
    """Check that there is a weight for each device, where only a machine could count them.

    Raises:
        UsageError: if there are more, or fewer.

    """
    noun = "rank" if config.strategy == "ddp" else "GPU"
    for key in OF_WEIGHTS:
        given = getattr(config, key)
        if given is not None and len(given) != num_devices:
            raise UsageError(
                f"expected one of `{key}` for each of the {num_devices} {noun}s, got {len(given)} "
                f"({short_list(given)}) - {at(key, where or {})}",
                hint="0 is a weight, too: that GPU then has no replica"
                if noun == "GPU"
                else f"start as many ranks: --set processes={len(given)}, or as many GPUs",
            )


def parse_numbers(text: str, key: str) -> tuple[Weight, ...]:
    """Read `1,2,2` or `0.5,1x7` (0.5 once, and 1 for each of seven), as given on a command line.

    Raises:
        UsageError: for anything else; negative numbers are the config's own business.

    """
    found: list[Weight] = []
    for part in text.split(","):
        number, _, times = part.strip().partition("x")
        value, count = any_number(number), any_number(times or "1")
        if value is None or not isinstance(count, int) or not 0 < count <= _MOST:
            _refuse(text, key)
        found += [value] * count
    return tuple(found) if len(found) <= _MOST else _refuse(text, key)


_MOST = 1_000_000


def _refuse(text: str, key: str) -> NoReturn:
    hint = f"write for example --{key} 1,2,2, or --{key} 1,2x7 for seven times 2"
    raise UsageError(
        f"expected a number for each GPU, got {show_typed(text)} - at option `--{key}`", hint=hint
    )


def written(numbers: Sequence[Weight]) -> str:
    """Write numbers as an option takes them: `1,2x7`, a number by itself or so often in a row."""
    parts: list[str] = []
    start = 0
    for stop in range(1, len(numbers) + 1):
        if stop < len(numbers) and numbers[stop] == numbers[start]:
            continue
        count = stop - start
        parts += [f"{numbers[start]}x{count}"] if count > 3 else [str(numbers[start])] * count
        start = stop
    return ",".join(parts)

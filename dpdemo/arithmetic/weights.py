"""The rule of unequal splits: each device gets rows in proportion to its weight, by the largest remainder.

A device with weight w of the sum W is due batch_size · w / W rows. It gets the whole part of that, and the
rows that are left then go one by one to the devices with the largest fractions, and of equal ones to the
lower device (Hamilton's method, as seats are shared out after an election). So no device is ever a whole row
away from its due, a device of weight 0 gets nothing, and a batch that the weights divide is cut exactly.

Equal weights are not torch.chunk's rule: they cut 10 rows over 3 devices into 4, 3, 3, and torch.chunk into
4, 4, 2. The two agree where all chunks are equal.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import groupby

from dpdemo.arithmetic.chunk import Split, expect_rows

Weight = int | float


def split_by_weights(batch_size: int, weights: Sequence[Weight]) -> Split:
    """Split `batch_size` rows over as many devices as there are weights, in their proportions.

    An empty batch gives one empty chunk to each device that has a weight.

    Args:
        batch_size: rows to share out.
        weights: one for each device, in device order: numbers of 0 or more, not all of them 0.

    Raises:
        ValueError: for a negative batch size, or weights that cannot be.

    """
    expect_rows(batch_size)
    whole = _whole(tuple(weights))
    total = sum(whole)
    dues = [divmod(batch_size * weight, total) for weight in whole]
    rows = [due for due, _ in dues]
    left = batch_size - sum(rows)
    by_fraction = sorted(range(len(dues)), key=lambda device: -dues[device][1])  # stable: lower devices first
    for device in by_fraction[:left]:
        rows[device] += 1
    at_least = min(batch_size, 1)
    chunks = ((device, rows[device]) for device, weight in enumerate(whole) if weight)
    return Split(batch_size, len(weights), tuple(chunk for chunk in chunks if chunk[1] >= at_least))


def split_by_chunks(batch_size: int, chunks: Sequence[int]) -> Split:
    """Split a batch into chunks of these sizes, or a short batch in their proportions.

    No device gets more rows of a short batch than its chunk has.

    Args:
        batch_size: rows to share out, at most the sum of the chunks.
        chunks: rows for each device in a full batch, in device order.

    Raises:
        ValueError: for a batch with more rows than the chunks have, or chunks that cannot be.

    """
    if batch_size > sum(chunks):
        raise ValueError(f"expected at most {sum(chunks)} rows ({short_list(chunks)}), got {batch_size}")
    return split_by_weights(batch_size, chunks)


def exact_batch_sizes_near(batch_size: int, weights: Sequence[Weight]) -> tuple[int, ...]:
    """List the nearest batch sizes, below and above, that the weights divide, so that each gets its due."""
    total = sum(_whole(tuple(weights)))
    below = batch_size // total * total
    return tuple(size for size in dict.fromkeys((below, -(-batch_size // total) * total)) if size)


def short_list(numbers: Sequence[Weight]) -> str:
    """Write weights or sizes for a sentence: `4, 13, 13`; of many, neighbouring equal ones as `13 × 20`."""
    if len(numbers) <= _MANY:
        return ", ".join(map(str, numbers))
    runs = [(value, len(list(equal))) for value, equal in groupby(numbers)]
    parts = [f"{value} × {count}" if count > 1 else f"{value}" for value, count in runs[:_MANY]]
    return ", ".join(parts) + (", ..." if len(runs) > _MANY else "")


_MANY = 8


@lru_cache(maxsize=64)
def _whole(weights: tuple[Weight, ...]) -> tuple[int, ...]:
    """Scale weights to whole numbers without a common factor."""
    exact = [_exact(weight) for weight in weights]
    scale = math.lcm(*(weight.denominator for weight in exact))
    whole = [int(weight * scale) for weight in exact]
    common = math.gcd(*whole)
    if not common:
        raise ValueError("expected at least one weight above 0, got " + (short_list(weights) or "none"))
    return tuple(weight // common for weight in whole)


def _exact(weight: Weight) -> Fraction:
    """Take a weight as it is written: 0.1 is a tenth, not the float next to it."""
    if not isinstance(weight, (int, float)):
        raise TypeError(f"expected a number as weight, got {weight!r}")
    if not math.isfinite(weight) or weight < 0:
        raise ValueError(f"expected a weight of 0 or more, got {weight}")
    return Fraction(str(weight))

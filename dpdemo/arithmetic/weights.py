"""The rule of unequal splits: each device gets rows in proportion to its weight, by the largest remainder.

A device with weight w of the sum W is due batch_size · w / W rows. It gets the whole part of that, and the
rows that are left then go one by one to the devices with the largest fractions, and of equal ones to the
lower device (Hamilton's method, as seats are shared out after an election). So no device is ever a whole row
away from its due, a device of weight 0 gets nothing, and a batch that the weights divide is cut exactly.

Equal weights are not torch.chunk's rule: they cut 10 rows over 3 devices into 4, 3, 3, and torch.chunk into
4, 4, 2. The two agree where all chunks are equal.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import groupby

from dpdemo.arithmetic.chunk import Run, Split, expect_rows

Weight = int | float


@dataclass(frozen=True, slots=True)
class _Share:
    """Neighbouring devices, from number `first` on, of equal weight: a whole number after scaling."""

    first: int
    count: int
    weight: int


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
    shares, total = _shares(tuple(weights))
    dues = [divmod(batch_size * share.weight, total) for share in shares]
    left = batch_size - sum(share.count * whole for share, (whole, _) in zip(shares, dues, strict=True))
    extra = [0] * len(shares)
    for index in sorted(range(len(shares)), key=lambda index: -dues[index][1]):  # stable: lower devices first
        extra[index] = min(shares[index].count, left)
        left -= extra[index]
    pieces = []
    for share, (whole, _), more in zip(shares, dues, extra, strict=True):
        pieces.append(Run(share.first, more, whole + 1))
        if share.weight:
            pieces.append(Run(share.first + more, share.count - more, whole))
    return Split(batch_size, len(weights), _joined(pieces, at_least=min(batch_size, 1)))


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
    _, total = _shares(tuple(weights))
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
def _shares(weights: tuple[Weight, ...]) -> tuple[tuple[_Share, ...], int]:
    """Scale weights to whole numbers without a common factor, equal neighbours as one; and add them up."""
    runs = [(_exact(value), len(list(equal))) for value, equal in groupby(weights)]
    scale = math.lcm(*(value.denominator for value, _ in runs))
    whole = [int(value * scale) for value, _ in runs]
    common = math.gcd(*whole)
    if not common:
        raise ValueError("expected at least one weight above 0, got " + (short_list(weights) or "none"))
    shares, first = [], 0
    for value, (_, count) in zip(whole, runs, strict=True):
        shares.append(_Share(first, count, value // common))
        first += count
    return tuple(shares), sum(share.count * share.weight for share in shares)


def _exact(weight: Weight) -> Fraction:
    """Take a weight as it is written: 0.1 is a tenth, not the float next to it."""
    if not isinstance(weight, (int, float)):
        raise TypeError(f"expected a number as weight, got {weight!r}")
    if not math.isfinite(weight) or weight < 0:
        raise ValueError(f"expected a weight of 0 or more, got {weight}")
    return Fraction(str(weight))


def _joined(pieces: Iterable[Run], at_least: int) -> tuple[Run, ...]:
    """Join neighbouring runs of equal rows, without those that hold no device or too few rows."""
    found: list[Run] = []
    for piece in pieces:
        if not piece.count or piece.rows < at_least:
            continue
        last = found[-1] if found else None
        if last and last.rows == piece.rows and last.first + last.count == piece.first:
            found[-1] = Run(last.first, last.count + piece.count, last.rows)
        else:
            found.append(piece)
    return tuple(found)

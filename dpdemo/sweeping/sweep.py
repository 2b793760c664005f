"""`sweep`: one figure of a full batch for each batch size and number of GPUs, by arithmetic alone."""

from collections.abc import Callable, Sequence
from typing import get_args

from dpdemo.arithmetic.chunk import Split, split_batch
from dpdemo.arithmetic.limits import MAX_GPUS
from dpdemo.config.fields import INT64_MAX, Config
from dpdemo.errors import UsageError, about
from dpdemo.results.sweep import GpuLine, Measure, SweepReport
from dpdemo.sweeping.axes import parse_axis
from dpdemo.wording import show

MOST_CELLS = 100_000
GPUS = "1-16"
BATCH_SIZES = "1-64"
NEAR = Config().batch_size

Numbers = str | int | Sequence[int]
"""An axis as the user writes it, `16-512:8`, or its numbers."""

_FIGURES: dict[Measure, Callable[[Split], float]] = {
    "balance": lambda split: split.batch_size / (split.num_devices * split.largest),
    "weight": lambda split: split.batch_size / (split.num_chunks * split.smallest),
    "idle": lambda split: split.num_idle,
}


def sweep(
    gpus: Numbers = GPUS, batch_size: Numbers = BATCH_SIZES, *, of: Measure = "balance", near: int = NEAR
) -> SweepReport:
    """Compute a figure for every batch size over every number of GPUs.

    Args:
        gpus: the numbers of GPUs, as `1-16`, `1-16:x2`, a number, or a sequence of numbers.
        batch_size: the batch sizes, in the same forms.
        of: `balance`, `weight` or `idle`: the `utilization`, `sample_weight` and number of idle GPUs that
            `simulate` reports for a full batch.
        near: for each number of GPUs the report names the batch size nearest to this one that they share
            equally.

    Returns:
        The figure of each cell, a line for each number of GPUs.

    Raises:
        UsageError: if an axis or `of` is not valid, or the grid has more than 100,000 cells.

    """
    if of not in _FIGURES:
        raise UsageError(f"expected {', '.join(get_args(Measure))}, got {show(of)}", key="of")
    numbers = _axis(gpus, MAX_GPUS, "gpus")
    sizes = _axis(batch_size, INT64_MAX, "batch_size")
    if len(numbers) * len(sizes) > MOST_CELLS:
        raise UsageError(
            f"expected at most {MOST_CELLS} cells, got {len(sizes)} batch sizes over {len(numbers)} "
            "numbers of GPUs",
            hint="take every eighth batch size with `:8`, or powers of two with `:x2`",
        )
    lines = tuple(_line(number, sizes, of, near) for number in numbers)
    return SweepReport(of, near, tuple(sizes), lines)


def _line(gpus: int, batch_sizes: Sequence[int], of: Measure, near: int) -> GpuLine:
    splits = [split_batch(size, gpus) for size in batch_sizes]
    even = [split.batch_size for split in splits if _is_even(split)]
    return GpuLine(
        gpus,
        min(even, key=lambda size: (abs(size - near), -size), default=None),
        tuple(map(_FIGURES[of], splits)),
        tuple(split.num_idle > 0 for split in splits),
        tuple(split.smallest == 1 for split in splits),
    )


def _is_even(split: Split) -> bool:
    """Whether all GPUs get the same number of rows, and none a lone one: BatchNorm cannot train on it."""
    return split.is_even and split.num_idle == 0 and split.smallest > 1


def _axis(numbers: Numbers, most: int, key: str) -> Sequence[int]:
    if isinstance(numbers, int):
        numbers = str(numbers)
    text = numbers if isinstance(numbers, str) else ",".join(map(str, numbers))
    with about(key):
        return parse_axis(text, most)

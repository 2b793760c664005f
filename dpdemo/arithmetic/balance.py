"""DataParallel's balance rule: it warns when one GPU has under 75 % of another's memory or multiprocessors.

The rule is `_check_balance` of `torch/nn/parallel/data_parallel.py`: memory first, and multiprocessors only
when memory is balanced. There it is a warning at construction; here it is an answer beforehand.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

THRESHOLD = 0.75
Quantity = Literal["memory", "multiprocessors"]


@dataclass(frozen=True, slots=True)
class VisibleDevice:
    """A GPU as torch sees it."""

    name: str
    memory_bytes: int
    multiprocessors: int


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The pair that breaks the rule, and by how much: `ratio` is the smaller over the larger."""

    what: Quantity
    smaller: VisibleDevice
    larger: VisibleDevice
    ratio: float


def find_imbalance(devices: Sequence[VisibleDevice]) -> Imbalance | None:
    """Find the pair that DataParallel over these devices would warn about, if any."""
    if not devices:
        return None
    return _imbalance("memory", devices, [device.memory_bytes for device in devices]) or _imbalance(
        "multiprocessors", devices, [device.multiprocessors for device in devices]
    )


def _imbalance(what: Quantity, devices: Sequence[VisibleDevice], values: Sequence[int]) -> Imbalance | None:
    smallest, largest = min(values), max(values)
    if smallest / largest >= THRESHOLD:
        return None
    return Imbalance(
        what, devices[values.index(smallest)], devices[values.index(largest)], smallest / largest
    )

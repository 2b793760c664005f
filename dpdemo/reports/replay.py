"""What came of a replay: identical, equal to round-off, or where it first differs. Torch-free."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from dpdemo.reports.base import Finite, Report, Row
from dpdemo.reports.devices import Devices

Verdict = Literal["identical", "equal to round-off", "different"]


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two records differ: in batch 0 before the first, and in which field of which tensor.

    `absolute`, `relative` and `tolerance` are None where there is nothing to subtract, as for a shape.
    """

    batch: int
    what: str
    field: str
    expected: str
    got: str
    absolute: Finite | None = None
    relative: Finite | None = None
    tolerance: Finite | None = None

    @property
    def is_round_off(self) -> bool:
        """Whether the difference stays within the tolerance of the numbers' type."""
        return self.absolute is not None and self.tolerance is not None and self.absolute <= self.tolerance

    @property
    def severity(self) -> float:
        """The difference as a share of what is allowed."""
        if not self.absolute:
            return 0.0
        return self.absolute / self.tolerance if self.tolerance else math.inf


@dataclass(frozen=True, slots=True)
class Replay(Report):
    """What came of a replay: `first` is where it first differs, `largest` the largest round-off.

    `num_tensors` were compared, of which `num_inexact` had other bytes.
    """

    SCHEMA: ClassVar[str] = "dpdemo.replay/1"
    columns: ClassVar[tuple[str, ...]] = (
        *("verdict", "num_batches", "num_tensors", "num_inexact"),
        *("batch", "what", "field", "expected", "got", "absolute", "relative", "tolerance"),
    )
    verdict: Verdict
    devices: Devices
    virtual: bool
    torch: str
    recorded_torch: str
    recorded_virtual: bool
    recorded_devices: Devices
    num_batches: int
    num_tensors: int
    num_inexact: int
    largest: Difference | None
    first: Difference | None

    def each_row(self) -> Iterator[Row]:
        """Yield one row: the verdict, and the difference that decided it."""
        found = self.first or self.largest
        known = [None] * 8 if found is None else [getattr(found, name) for name in self.columns[4:]]
        yield self.verdict, self.num_batches, self.num_tensors, self.num_inexact, *known

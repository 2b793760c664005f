"""How two records of one tensor compare, and what a replay concludes from all of them; torch-free."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from dpdemo.devices import Devices
from dpdemo.recording import TensorRecord
from dpdemo.tolerance import EXACT, Tolerance, tolerance_of

Verdict = Literal["identical", "equal to round-off", "different"]

_SAME_BYTES = Tolerance(1e-12, 0.0)
"""Equal bytes have equal sums, but for the order in which another machine's vector units add float64."""


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
    absolute: float | None = None
    relative: float | None = None
    tolerance: float | None = None

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
class Replay:
    """What came of a replay: `first` is where it first differs, `largest` the largest round-off.

    `num_tensors` were compared, of which `num_inexact` had other bytes.
    """

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


def compare(batch: int, expected: TensorRecord, got: TensorRecord) -> Difference | None:
    """Compare two records of one tensor: None if nothing differs.

    Else it is what breaks the tolerance, values before sums, or what comes nearest to it.
    """
    for field in ("shape", "dtype", "device"):
        if getattr(expected, field) != getattr(got, field):
            return _unlike(batch, expected.what, field, getattr(expected, field), getattr(got, field))
    same = expected.sha256 == got.sha256
    tolerance = _SAME_BYTES if same else tolerance_of(expected.dtype)
    if len(expected.sample) != len(got.sample):
        return _unlike(batch, expected.what, "sample", expected.sample, got.sample)
    pairs = [_apart(batch, expected.what, pair) for pair in _pairs(expected, got, tolerance)]
    found = [difference for difference in pairs if difference is not None]
    broken = [difference for difference in found if not difference.is_round_off]
    if broken:
        return broken[0]
    if same:
        return None
    if tolerance == EXACT:
        return _unlike(batch, expected.what, "sha256", expected.sha256, got.sha256)
    least = Difference(batch, expected.what, "sha256", expected.sha256, got.sha256, 0.0, 0.0, 0.0)
    return max(found, key=lambda difference: difference.severity, default=least)


def _unlike(batch: int, what: str, field: str, expected: object, got: object) -> Difference:
    def text(value: object) -> str:
        return str(list(value)) if isinstance(value, tuple) else str(value)

    return Difference(batch, what, field, text(expected), text(got))


class _Pair(NamedTuple):
    """Two values of one field, the magnitude that they are measured by, and how far apart they may be."""

    field: str
    expected: float
    got: float
    size: float
    allowed: float


def _pairs(expected: TensorRecord, got: TensorRecord, tolerance: Tolerance) -> Iterator[_Pair]:
    """Pair up the numbers: a value is allowed its own round-off, a sum what its terms may be off together."""
    sampled = zip(expected.sample, got.sample, strict=True)
    values = [(f"sample[{index}]", want, have) for index, (want, have) in enumerate(sampled)]
    for field, want, have in [*values, ("max_abs", expected.max_abs, got.max_abs)]:
        size = abs(float(want))
        yield _Pair(field, float(want), float(have), size, tolerance.absolute + tolerance.relative * size)
    size = abs(float(expected.abs_sum))
    of_sum = tolerance.absolute * math.prod(expected.shape) + tolerance.relative * size
    for field, want, have in [("sum", expected.sum, got.sum), ("abs_sum", expected.abs_sum, got.abs_sum)]:
        yield _Pair(field, float(want), float(have), size, of_sum)


def _apart(batch: int, what: str, pair: _Pair) -> Difference | None:
    want, have = pair.expected, pair.got
    if want == have or (math.isnan(want) and math.isnan(have)):
        return None
    apart = abs(have - want)
    if not math.isfinite(apart):  # a NaN or an infinity on one side only
        return Difference(batch, what, pair.field, repr(want), repr(have), math.inf, math.inf, 0.0)
    relative = apart / pair.size if pair.size else math.inf
    return Difference(batch, what, pair.field, repr(want), repr(have), apart, relative, pair.allowed)

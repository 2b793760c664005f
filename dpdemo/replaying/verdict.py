"""How two records of one tensor compare; torch-free."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from dpdemo.arithmetic.tolerance import EXACT, Tolerance, tolerance_of
from dpdemo.reports.recording import TensorRecord
from dpdemo.reports.replay import Difference

_SAME_BYTES = Tolerance(1e-12, 0.0)
"""Equal bytes have equal sums, but for the order in which another machine's vector units add float64."""


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
    """Pair up the numbers: a value is allowed the round-off of the tensor's largest, a sum that of its terms.

    A small value is often the difference of large ones, and has their round-off.
    """
    largest = float(expected.max_abs)
    scale = largest if math.isfinite(largest) else 0.0
    sampled = zip(expected.sample, got.sample, strict=True)
    values = [(f"sample[{index}]", want, have) for index, (want, have) in enumerate(sampled)]
    for field, want, have in [*values, ("max_abs", expected.max_abs, got.max_abs)]:
        size = abs(float(want))
        yield _Pair(field, float(want), float(have), size, tolerance.allowed(max(size, scale)))
    size = abs(float(expected.abs_sum))
    of_sum = math.prod(expected.shape) * tolerance.allowed(scale)
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

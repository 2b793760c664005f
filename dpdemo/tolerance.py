"""How far apart two results may be and still be equal to round-off, by the type of their numbers.

The figures are torch.testing.assert_close's defaults (`torch/testing/_comparison.py`, `_DTYPE_PRECISIONS`); a
test holds them against torch's.
"""

from typing import NamedTuple


class Tolerance(NamedTuple):
    """|got - expected| may be up to `absolute` + `relative` · |expected|."""

    relative: float
    absolute: float


EXACT = Tolerance(0.0, 0.0)
"""Whole numbers and truth values have no round-off."""

TOLERANCES = {
    "float16": Tolerance(1e-3, 1e-5),
    "bfloat16": Tolerance(1.6e-2, 1e-5),
    "float32": Tolerance(1.3e-6, 1e-5),
    "float64": Tolerance(1e-7, 1e-7),
    "complex32": Tolerance(1e-3, 1e-5),
    "complex64": Tolerance(1.3e-6, 1e-5),
    "complex128": Tolerance(1e-7, 1e-7),
}


def tolerance_of(dtype: str) -> Tolerance:
    """Give the tolerance of a type of numbers, such as `float32`."""
    return TOLERANCES.get(dtype, EXACT)

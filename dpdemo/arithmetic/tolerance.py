"""Tolerance of round-off between two results, by the type of their numbers.

The figures are torch.testing.assert_close's defaults (`torch/testing/_comparison.py`, `_DTYPE_PRECISIONS`); a
test compares them with torch's. A number is measured by the largest of its tensor: a small one is often the
difference of large ones, and its round-off is theirs.
"""

from typing import NamedTuple


class Tolerance(NamedTuple):
    """|got - expected| may be up to `absolute` + `relative` · |expected|."""

    relative: float
    absolute: float

    def allowed(self, size: float) -> float:
        """Return the allowed difference from an expected number of this size."""
        return self.absolute + self.relative * size


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
    """Return the tolerance of a type of numbers, such as `float32`."""
    return TOLERANCES.get(dtype, EXACT)


def whole_model_tolerance(dtype: str) -> Tolerance:
    """Return the tolerance of a whole model's result, in which the round-off of many operators adds up.

    `relative` is to be taken of the largest number of the result too. It is 150 times that of one operator in
    float32; half precision has bfloat16's, which autocast may use inside.
    """
    if dtype in ("float16", "bfloat16", "complex32"):
        return Tolerance(2e-2, 1e-8)
    return Tolerance(2e-4, 1e-8) if dtype in TOLERANCES else EXACT

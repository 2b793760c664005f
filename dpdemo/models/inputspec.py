"""Parse an input of a model: `32x128`, `mask=32x128:bool`, `ids=32x16:int64<1000`; torch-free."""

import re
from dataclasses import dataclass

from dpdemo.config.numbers import INT64_MAX, read_number
from dpdemo.errors import UsageError, about

_SPEC = re.compile(
    r"(?:(?P<name>[^\W\d]\w*)=)?(?P<shape>[0-9]+(?:[x,][0-9]+)*)(?::(?P<dtype>\w+)(?:<(?P<below>[0-9]+))?)?"
)
DTYPES = {
    "float": "float32", "float32": "float32", "float64": "float64", "double": "float64",
    "float16": "float16", "half": "float16", "bfloat16": "bfloat16", "int": "int64",
    "long": "int64", "int64": "int64", "int32": "int32", "bool": "bool",
}  # fmt: skip
"""The types that can be written, and what torch calls each."""


@dataclass(frozen=True, slots=True)
class WrittenInput:
    """One `--input` as written: a shape, and perhaps a name, a type, and a number that all are below."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    below: int = 2


def read_input(text: str) -> WrittenInput:
    """Read `32x128` (or `32,128`), `mask=32x128:bool` or `ids=32x16:int64<1000`.

    Raises:
        UsageError: for anything else.

    """
    with about("input"):
        return _read(text)


def _read(text: str) -> WrittenInput:
    read = _SPEC.fullmatch(text.strip())
    dtype = DTYPES.get(read["dtype"] or "float32") if read else None
    if read is None or dtype is None:
        raise UsageError(
            f"expected [NAME=]SHAPE[:TYPE[<N]] such as 32x128 or mask=32x128:bool, got {text[:60]!r}",
            hint=f"types are {', '.join(DTYPES)}; int64<1000 draws numbers below 1000",
        )
    shape = tuple(
        read_number(size, 0, INT64_MAX, "a size of a shape") for size in re.split("[x,]", read["shape"])
    )
    below = read_number(read["below"] or "2", 1, INT64_MAX, "int64<1000 is 0 to 999")
    return WrittenInput(read["name"] or "", shape, dtype, below)

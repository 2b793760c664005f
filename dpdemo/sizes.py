"""Sizes in bytes as people write them, read and written: "24GiB", "24GB", "98MB", "24"; "600 B", "1.17 KiB".

KB, MB, GB and TB are units of 1000, KiB, MiB, GiB and TiB of 1024, everywhere. A letter alone is a unit of
1024, as in GNU's tools. dpdemo writes units of 1024.
"""

import re
from collections.abc import Sequence

from dpdemo.errors import UsageError

_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?(B|[KMGT](?:iB|B)?)?", re.IGNORECASE | re.ASCII)


def parse_size(size: str | int) -> int:
    """Read "24GiB", "24GB" or "24", which is in GiB, as a number of bytes; an int is one already.

    Raises:
        UsageError: for anything else.

    """
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    read = _SIZE.fullmatch(size) if isinstance(size, str) else None
    num_bytes = int(float(read[1]) * _unit_bytes(read[2] or "GiB")) if read else 0
    if num_bytes < 1:
        raise UsageError(
            f"expected a size such as 24GiB or 512MiB, got {size!r}",
            hint="KiB, MiB, GiB and TiB are units of 1024; KB, MB, GB and TB of 1000",
        )
    return num_bytes


def _unit_bytes(unit: str) -> int:
    if unit.upper() == "B":
        return 1
    base = 1000 if len(unit) == 2 else 1024
    return int(base ** (1 + "KMGT".index(unit[0].upper())))


def capacities(memory: str | int | Sequence[str | int] | None, num_gpus: int) -> list[int | None]:
    """Return the capacity of each GPU: one size for all, or a list with one for each; None means no limit.

    Raises:
        UsageError: a size cannot be read, or there are more or fewer of them than GPUs.

    """
    if memory is None:
        return [None] * num_gpus
    if isinstance(memory, str) or not isinstance(memory, Sequence):
        return [parse_size(memory)] * num_gpus
    if len(memory) != num_gpus:
        raise UsageError(
            f"expected one size, or one for each of the {num_gpus} GPUs, got {len(memory)} sizes"
        )
    return [parse_size(size) for size in memory]


def size(num_bytes: int) -> str:
    """Write `600 B`, `1.17 KiB` or `24 GiB`: three digits, and a point only where one is needed."""
    if num_bytes < 1024:
        return f"{num_bytes} B"
    amount = float(min(num_bytes, _MOST))
    for unit in _WRITTEN:
        amount /= 1024
        if round(amount, 1) < 1000 or unit == _WRITTEN[-1]:
            break
    digits = 2 if amount < 9.995 else 1 if amount < 99.95 else 0
    text = f"{amount:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if digits else text} {unit}"


_MOST = 10**300
"""A float ends at 1.8e308, and shapes can be multiplied to more."""
_WRITTEN = ("KiB", "MiB", "GiB", "TiB", "PiB")

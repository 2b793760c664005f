"""Sizes of memory as people write them, read and written: "24GiB", "24GB", "24G", "24"; "600 B", "1.17 KiB".

Memory is sold in units of 1024, so a letter stands for 1024 whatever follows it, and a number alone counts
GiB: a card of 24 GB has 24 GiB.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?(?:([KMGT])(?:i?B)?)?", re.IGNORECASE | re.ASCII)


def parse_size(size: str | int) -> int:
    """Read "24GiB", "24GB", "24G" or "24" as a number of bytes; a plain int is one already.

    Raises:
        ValueError: for anything else.

    """
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    read = _SIZE.fullmatch(size) if isinstance(size, str) else None
    num_bytes = int(float(read[1]) * _UNITS[(read[2] or "G").upper()]) if read else 0
    if num_bytes < 1:
        raise ValueError(f"expected a size such as 24GiB or 512MiB, got {size!r}")
    return num_bytes


def exact_size(size: str) -> str:
    """Write a readable size in the one way that leaves no doubt: `24GB` is `24GiB`."""
    read = _SIZE.fullmatch(size)
    return size if read is None else f"{read[1]}{(read[2] or 'G').upper()}iB"


def capacities(memory: str | int | Sequence[str | int] | None, num_gpus: int) -> list[int | None]:
    """Return the capacity of each GPU: one size for all, or a list with one for each; None is no limit.

    Raises:
        ValueError: a size cannot be read, or there are more or fewer of them than GPUs.

    """
    if memory is None:
        return [None] * num_gpus
    if isinstance(memory, str) or not isinstance(memory, Sequence):
        return [parse_size(memory)] * num_gpus
    if len(memory) != num_gpus:
        raise ValueError(
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

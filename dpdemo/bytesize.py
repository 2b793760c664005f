"""Sizes of memory as people write them: "24GiB", "512MiB"."""

from __future__ import annotations

import re
from collections.abc import Sequence

_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)(KiB|MiB|GiB|TiB)")


def parse_size(size: str | int) -> int:
    """Read "24GiB" as a number of bytes; a plain number is one already.

    Raises:
        ValueError: for anything else; units of a thousand (GB) are told apart from those of 1024 (GiB).

    """
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    read = _SIZE.fullmatch(size) if isinstance(size, str) else None
    num_bytes = int(float(read[1]) * _UNITS[read[2]]) if read else 0
    if num_bytes < 1:
        raise ValueError(f"expected a size such as 24GiB or 512MiB, got {size!r}{_advice(size)}")
    return num_bytes


def _advice(size: object) -> str:
    text = str(size).strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return f"; with its unit it is {text}GiB"
    if re.fullmatch(r"\d+(\.\d+)?\s+[KMGT]iB", text):
        return "; write it without the space"
    if thousands := re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT])i?B?", text, re.IGNORECASE):
        return f"; memory is sold in units of 1024: {thousands[1]}{thousands[2].upper()}iB"
    return ""


def capacities(memory: str | int | Sequence[str | int] | None, num_gpus: int) -> list[int | None]:
    """Return the capacity of each GPU: one size for all, or a list with one for each; None is no limit.

    Raises:
        ValueError: a size cannot be read, or there are more or fewer of them than GPUs.

    """
    if memory is None:
        return [None] * num_gpus
    if isinstance(memory, (str, int)):
        return [parse_size(memory)] * num_gpus
    if len(memory) != num_gpus:
        raise ValueError(
            f"expected one size, or one for each of the {num_gpus} GPUs, got {len(memory)} sizes"
        )
    return [parse_size(size) for size in memory]

"""Find the line of a library or program that multiplies a loss by the number of ranks."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from dpdemo.models.frames import is_installed
from dpdemo.ranks.observe.notes import short

if TYPE_CHECKING:
    from collections.abc import Sequence

_SCALES = re.compile(r"^[^#]*loss\S*\s*\*=?.*(num_processes|num_ranks|world|n_gpu)", re.IGNORECASE)


def where_scaled(lines: Sequence[str]) -> tuple[str, bool] | None:
    """Return the line, and whether it is a library's; `lines` are those that led to the backward pass."""
    for name in dict.fromkeys(line.rpartition(":")[0] for line in lines):
        number = _scaling_line(name)
        if number:
            return f"{_short(name)}:{number}", is_installed(name)
    return None


@cache
def _scaling_line(name: str) -> int:
    try:
        text = Path(name).read_text("utf-8", "replace")
    except OSError:
        return 0
    return next((number for number, line in enumerate(text.splitlines(), 1) if _SCALES.match(line)), 0)


def _short(name: str) -> str:
    return name.rpartition("-packages/")[2] if is_installed(name) else short(name)

"""Find the line of a library or program that treats a loss by the number of ranks."""

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
_GATHERS = re.compile(r"^[^#]*\ball_gather\w*\(")


def where_scaled(lines: Sequence[str]) -> str:
    """Return the line that multiplies a loss by the number of ranks, in a pass's files, or nothing."""
    return _where(lines, _SCALES)


def where_gathered(lines: Sequence[str]) -> str:
    """Return the line that gathers rows of all ranks, among a pass's files, or nothing."""
    return _where([line for line in lines if is_installed(line)], _GATHERS)


def _where(lines: Sequence[str], pattern: re.Pattern[str]) -> str:
    for name in dict.fromkeys(line.rpartition(":")[0] for line in lines):
        number = _first_line(name, pattern)
        if number and is_installed(name):
            return f"{name.rpartition('-packages/')[2]}:{number} (a library's line, not your program's)"
        if number:
            return f"{short(name)}:{number}"
    return ""


@cache
def _first_line(name: str, pattern: re.Pattern[str]) -> int:
    try:
        text = Path(name).read_text("utf-8", "replace")
    except OSError:
        return 0
    return next((number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 0)

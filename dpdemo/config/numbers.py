"""Numbers that a user wrote, read with bounds: no number is too long to be refused politely."""

import re
from collections.abc import Mapping

from dpdemo.errors import UsageError
from dpdemo.wording import show

INT64_MAX = 2**63 - 1
"""The largest number that torch counts with."""
_MOST_DIGITS = 19
"""Digits of the largest int64. Python itself refuses to read more than 4300 of them, with a ValueError."""
_SCALED = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(\S*)\s*")


def whole_number(text: str, least: int, most: int) -> int | None:
    """Return the number that a text writes in plain digits, or None if it is none from `least` to `most`."""
    digits = text.strip(" ").lstrip("0") or "0"
    if re.fullmatch("[0-9]+", text.strip(" ")) is None or len(digits) > _MOST_DIGITS:
        return None
    number = int(digits)
    return number if least <= number <= most else None


def read_number(text: str, least: int, most: int, hint: str = "") -> int:
    """Read a whole number from `least` to `most`.

    Raises:
        UsageError: for anything else.

    """
    number = whole_number(text, least, most)
    if number is None:
        raise UsageError(f"expected a whole number from {least} to {most}, got {show(text)}", hint=hint)
    return number


def any_number(text: str) -> int | float | None:
    """Return the number that a text writes, whole or not, or None if it writes none."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def scaled_number(text: str, units: Mapping[str, float], least: float, most: float) -> float | None:
    """Return the number of a text such as `49ms` times its unit, or None if it is none in these bounds."""
    read = _SCALED.fullmatch(text)
    if read is None or read[2] not in units:
        return None
    number = float(read[1]) * units[read[2]]  # hundreds of digits are infinity, which is past any bound
    return number if least <= number <= most else None

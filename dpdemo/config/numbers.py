"""Reading whole numbers that a user wrote, with bounds: no number is too long to be refused politely."""

import re

from dpdemo.errors import UsageError
from dpdemo.wording import show

_MOST_DIGITS = 19
"""Digits of the largest int64. Python itself refuses to read more than 4300 of them, with a ValueError."""


def whole_number(text: str, least: int, most: int) -> int | None:
    """Return the number that a text writes in plain digits, or None if it is none from `least` to `most`."""
    digits = text.strip(" ").lstrip("0") or "0"
    if re.fullmatch("[0-9]+", text.strip(" ")) is None or len(digits) > _MOST_DIGITS:
        return None
    number = int(digits)
    return number if least <= number <= most else None


def read_number(text: str, least: int, most: int, where: str, hint: str = "") -> int:
    """Read a whole number from `least` to `most`.

    Raises:
        UsageError: for anything else.

    """
    number = whole_number(text, least, most)
    if number is None:
        raise UsageError(
            f"expected a whole number from {least} to {most}, got {show(text)} - at {where}", hint=hint
        )
    return number


def any_number(text: str) -> int | float | None:
    """Return the number that a text writes, whole or not, or None if it writes none."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def scaled_number(digits: str, unit: float, least: float, most: float) -> float | None:
    """Return a decimal number times its unit, or None if that is not from `least` to `most`."""
    number = float(digits) * unit  # hundreds of digits are infinity, which is past any bound
    return number if least <= number <= most else None

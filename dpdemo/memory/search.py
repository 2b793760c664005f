"""Search for the largest number that fits: tries are expensive, and the room left falls nearly linearly.

Regula falsi with a guard: the line through the two ends of the bracket says where to try next; when that
does not halve the bracket twice in a row, its middle is tried. Only a try decides: the answer was tried, and
so was its successor.
"""

from collections.abc import Callable
from functools import cache

Room = Callable[[int], int]
"""The room that is left with a number, negative where it does not fit; it is asked once for each number."""

LIMIT = 2**40


def largest_that_fits(room: Room, first: int) -> int:
    """Return the largest number, from 1 on, that leaves room; 0 if not even 1 does, LIMIT if all do.

    `first` is where to begin: near the answer, at best.
    """
    left = cache(room)
    low, high = _bracket(left, first)
    slow = 0
    while high - low > 1:
        width = high - low
        number = _between(low, high, left) if slow < 2 else (low + high) // 2
        if left(number) >= 0:
            low = number
        else:
            high = number
        slow = slow + 1 if high - low > width // 2 else 0
    return low


def past_steps(room: Room, largest: int, reach: int) -> int:
    """Return the largest number that leaves room past some that do not, none more than `reach` apart."""
    while True:
        near = range(largest + 1, min(largest + reach, LIMIT) + 1)
        larger = next((number for number in near if room(number) >= 0), None)
        if larger is None:
            return largest
        largest = larger


def _bracket(left: Room, first: int) -> tuple[int, int]:
    """Return a number that fits, or 0, and a larger one that does not."""
    if left(first) < 0:
        return (1, first) if first > 1 and left(1) >= 0 else (0, 1)
    low, high = first, min(2 * first, LIMIT)
    while left(high) >= 0:
        if high == LIMIT:
            return LIMIT, LIMIT + 1
        low, high = high, min(_beyond(low, high, left), LIMIT)
    return low, high


def _beyond(low: int, high: int, left: Room) -> int:
    """Return a number a little past where the line through two numbers that fit reaches zero."""
    fall = left(low) - left(high)
    if fall <= 0:
        return high * 8
    return max(high + (high - low) * left(high) // fall * 9 // 8 + 1, 2 * high)


def _between(low: int, high: int, left: Room) -> int:
    """Return a number inside the bracket, near where the line through its ends reaches zero."""
    if low == 0:  # which is never tried
        return (low + high) // 2
    reach = (high - low) * left(low) // max(left(low) - left(high), 1)
    return min(max(low + reach, low + 1), high - 1)

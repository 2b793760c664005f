"""The axes of a sweep: the whole numbers of an option such as `--batch-size 16-512:8`.

16           one number
16,24,30     these
16-512       all from 16 to 512, both ends included
16-512:8     every eighth of them: 16, 24, 32, ...
1-64:x2      each twice the one before: 1, 2, 4, ...
1-4,8,16-64:16   a list of any of these
"""

import re
from collections.abc import Sequence

from dpdemo.config.numbers import whole_number
from dpdemo.errors import UsageError
from dpdemo.wording import show

MOST_VALUES = 100_000
"""Most numbers of one axis."""
_EXPECTED = "numbers such as 16, 16-512, 16-512:8, 1-64:x2 or a list of these"
_SPAN = re.compile(r"([0-9]+)(?:-([0-9]+)(?::(x?)([0-9]+))?)?")


def parse_axis(text: str, most: int) -> Sequence[int]:
    """Read an axis: its numbers from 1 to `most`, going up, each once.

    Returns:
        A range wherever the numbers are equally far apart and were written as one span, else a tuple.

    Raises:
        UsageError: for anything else, a range that does not go up, or too many numbers.

    """
    spans = [_span(part.strip(" "), text, most) for part in text.split(",")]
    if sum(map(len, spans)) > MOST_VALUES:
        raise UsageError(
            f"expected at most {MOST_VALUES} numbers, got {show(text)}",
            hint="take every eighth with `:8`, or each twice the one before with `:x2`",
        )
    return spans[0] if len(spans) == 1 else tuple(sorted(set().union(*spans)))


def _span(part: str, text: str, most: int) -> Sequence[int]:
    found = _SPAN.fullmatch(part)
    if found is None:
        raise UsageError(f"expected {_EXPECTED}, got {show(text)}", hint="try 1-64")
    first, last = (_bounded(digits, most) for digits in (found[1], found[2] or found[1]))
    if last < first:
        raise UsageError(
            f"expected a span that goes up, got {show(part)}",
            hint=f"write {last}-{first}",
        )
    step = 1 if found[4] is None else _bounded(found[4], most)
    if not found[3]:
        return range(first, last + 1, step)
    if step < 2:
        raise UsageError(f"expected a factor of 2 or more, got {show(part)}", hint="write :x2")
    return _powers(first, last, step)


def _powers(first: int, last: int, factor: int) -> tuple[int, ...]:
    numbers = [first]
    while numbers[-1] * factor <= last:
        numbers.append(numbers[-1] * factor)
    return tuple(numbers)


def _bounded(digits: str, most: int) -> int:
    number = whole_number(digits, 1, most)
    if number is None:
        raise UsageError(
            f"expected numbers from 1 to {most}, got {show(digits)}",
            hint=f"expected {_EXPECTED}",
        )
    return number

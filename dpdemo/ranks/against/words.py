"""Numbers and names as the sentences of a comparison write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpdemo.ranks.against.compare import Step
    from dpdemo.ranks.against.store import Backward

NEAR = 0.02
_MAX_NAMES = 4


def percent(number: float) -> str:
    """Write a number with three digits."""
    return f"{number:.3g}"


def near(a: float, b: float, relative: float = NEAR) -> bool:
    """Return whether two numbers are equal up to 2 %."""
    return abs(a - b) <= relative * abs(b)


def named(names: Sequence[str]) -> str:
    """List the first names."""
    more = f" and {len(names) - _MAX_NAMES} others" if len(names) > _MAX_NAMES else ""
    return f"{', '.join(names[:_MAX_NAMES])}{more}"


def times(factor: float) -> str:
    """Write a factor as people say it."""
    return f"1/{percent(1 / factor)} of" if 0 < factor < 1 else f"{percent(factor)} times"


def backward_of(step: Step) -> Backward | None:
    """Return rank 0's last backward pass."""
    passes = step.ranks[0].detail.backward
    return passes[-1] if passes else None


def line_of(step: Step) -> str:
    """Return the line of the last backward pass, or of the step."""
    found = backward_of(step)
    return found.at if found else step.at

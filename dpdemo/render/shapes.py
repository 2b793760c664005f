"""Shapes in a reader's words."""

from collections.abc import Callable

from dpdemo.reports.split import Shapes

UNKNOWN = "?"
"""Stands for what a user's own model returns, which only running it can tell."""


def bracketed(shapes: Shapes, clean: Callable[[str], str] = str) -> tuple[str, ...]:
    """Write each tensor as `[10, 5]`, or `logits [10, 5]` inside a structure, its name made clean."""
    if not shapes:
        return (UNKNOWN,)
    return tuple(f"{clean(path)} {list(shape)}".lstrip() for path, shape in shapes)

"""Shapes in a reader's words."""

from dpdemo.render.glyphs import printable
from dpdemo.report import Shape, Shapes

UNKNOWN = "?"
"""Stands for what a user's own model returns, which only running it can tell."""


def is_lone(shapes: Shapes) -> bool:
    """Tell whether the structure is just one tensor."""
    return len(shapes) == 1 and not shapes[0][0]


def bracketed(shapes: Shapes) -> tuple[str, ...]:
    """Write each tensor as `[10, 5]`, or `logits [10, 5]` inside a structure."""
    if not shapes:
        return (UNKNOWN,)
    return tuple(f"{printable(path)} {list(shape)}".lstrip() for path, shape in shapes)


def crossed(shapes: Shapes) -> str:
    """Write a lone tensor as `10x5`, a structure as `logits=10x5 state=2x10`, an unknown one as nothing."""
    if is_lone(shapes):
        return _crossed(shapes[0][1])
    return " ".join(f"{printable(path)}={_crossed(shape)}" for path, shape in shapes)


def _crossed(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "scalar"

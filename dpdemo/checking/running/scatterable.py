"""Arguments that scatter cannot take, made into ones that it can, so that a check goes on behind them."""

from typing import Any

import torch

from dpdemo.checking.evidence import Call, Leaf
from dpdemo.checking.observing.leaves import flatten_arguments
from dpdemo.models.inputs import Arguments
from dpdemo.watching.tree import rebuild


def repaired(call: Call, given: Arguments, forward: Any) -> Arguments | None:
    """Make arguments that scatter can take out of ones that it cannot; None where nothing helps."""
    rows = call.rows
    changed = False

    def change(path: str, leaf: object) -> Any:
        nonlocal changed
        if isinstance(leaf, torch.Tensor) and path in bad:
            changed = True
            return leaf.item() if leaf.dim() == 0 else leaf.expand(rows, *leaf.shape[1:])
        return leaf

    bad = {leaf.path for leaf in call.tensor_arguments if _can_repair(leaf, call)}
    names = [path for path, _ in flatten_arguments(forward, *given)]
    order = iter(names)
    args = rebuild(given[0], lambda leaf: change(next(order), leaf)) if given[0] else ()
    kwargs = rebuild(given[1], lambda leaf: change(next(order), leaf)) if given[1] else {}
    return (args, kwargs) if changed else None


def _can_repair(leaf: Leaf, call: Call) -> bool:
    if leaf.shape == ():
        return True
    return call.dim == 0 and leaf.size(0) == 1 and call.rows > 1

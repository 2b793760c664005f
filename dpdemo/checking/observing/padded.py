"""Results longer in one replica than in another: what is padded, and what one GPU has there."""

from collections.abc import Sequence
from typing import Any, TypeGuard

import torch

from dpdemo.watching.tree import flatten, rebuild


def without_padding(
    single: object, gathered: object, outputs: list[object], dim: int
) -> tuple[object, object]:
    """Set to zero, in both results, what a wrapper's own `gather` has added behind replicas' shorter tensors.

    Args:
        single: what one device gives.
        gathered: what the wrapper gives.
        outputs: what each replica has returned.
        dim: the dimension along which the batch is cut.

    """
    columns = [dict(flatten(output)) for output in outputs]
    alone = dict(flatten(single))
    masks: dict[str, torch.Tensor] = {}
    for path, leaf in flatten(gathered):
        parts = [column.get(path) for column in columns]
        shapes = [part.shape for part in parts if isinstance(part, torch.Tensor)]
        twin = alone.get(path)
        if not _is_dense(leaf) or not _is_dense(twin) or twin.shape != leaf.shape:
            continue
        is_joined = len(shapes) == len(parts) and all(len(shape) == leaf.dim() > dim for shape in shapes)
        if is_joined and sum(shape[dim] for shape in shapes) == leaf.shape[dim]:
            masks[path] = _filled(leaf, shapes, dim)

    def cut(value: object) -> Any:
        paths = iter([path for path, _ in flatten(value)])

        def own(leaf: Any) -> Any:
            mask = masks.get(next(paths))
            return leaf if mask is None or bool(mask.all()) else leaf.masked_fill(~mask.to(leaf.device), 0)

        return rebuild(value, own)

    return cut(single), cut(gathered)


def _is_dense(value: object) -> TypeGuard[torch.Tensor]:
    """Whether it is a tensor with a number at each of its places."""
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def _filled(leaf: torch.Tensor, shapes: Sequence[torch.Size], dim: int) -> torch.Tensor:
    """Mark what of a joined tensor comes from parts of these shapes, which may be smaller than it."""
    mask = torch.zeros(leaf.shape, dtype=torch.bool, device="cpu")
    first = 0
    for shape in shapes:
        slices = [slice(0, size) for size in shape]
        slices[dim] = slice(first, first + shape[dim])
        mask[tuple(slices)] = True
        first += shape[dim]
    return mask

"""Results longer in one replica than in another: what is padded, and what one GPU has there."""

from typing import Any, TypeGuard

import torch

from dpdemo.watching.tree import flatten, rebuild_by_path


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
        parts = [part for column in columns if _is_dense(part := column.get(path))]
        twin = alone.get(path)
        if (
            not _is_dense(leaf)
            or not _is_dense(twin)
            or twin.shape != leaf.shape
            or len(parts) < len(columns)
        ):
            continue
        is_joined = all(part.dim() == leaf.dim() > dim for part in parts)
        if is_joined and sum(part.size(dim) for part in parts) == leaf.size(dim):
            masks[path] = torch.cat([_filled(leaf, part.shape, dim) for part in parts], dim)

    def cut(path: str, leaf: Any) -> Any:
        mask = masks.get(path)
        return leaf if mask is None or bool(mask.all()) else leaf.masked_fill(~mask.to(leaf.device), 0)

    return rebuild_by_path(single, cut), rebuild_by_path(gathered, cut)


def _is_dense(value: object) -> TypeGuard[torch.Tensor]:
    """Whether it is a tensor with a number at each of its places."""
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def _filled(leaf: torch.Tensor, shape: torch.Size, dim: int) -> torch.Tensor:
    """Mark what a part of this shape fills of its rows in a joined tensor, which may be wider."""
    rows = [*leaf.shape[:dim], shape[dim], *leaf.shape[dim + 1 :]]
    mask = torch.zeros(rows, dtype=torch.bool, device="cpu")
    mask[tuple(slice(0, size) for size in shape)] = True
    return mask

"""Shards of parameters: which part of a parameter a rank has, and how the parts make the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from dpdemo.ranks.against.numbers import put, sampled
from dpdemo.ranks.against.store import Sampled

if TYPE_CHECKING:
    from dpdemo.ranks.against.store import Box, Detail, Kept

WHOLE = -1
"""The place of a parameter that each rank has whole."""


def shard_of(parameter: Any) -> int | None:
    """Return which shard of a parameter the rank has, or None if it has the whole."""
    placements = getattr(parameter, "placements", None)
    if placements is not None:
        mesh, found = parameter.device_mesh, 0
        for dim, each in enumerate(placements):
            if each.is_shard():
                found = found * mesh.size(dim) + mesh.get_coordinate()[dim]
        return found if any(each.is_shard() for each in placements) else None
    if hasattr(parameter, "_is_flat_param") or getattr(parameter, "_fsdp_flattened", False):
        return dist.get_rank() if dist.is_initialized() else 0
    return None


def box_of(parameter: Any) -> Box | None:
    """Return where the rank's shard of a DTensor begins, and its shape."""
    if getattr(parameter, "placements", None) is None or shard_of(parameter) is None:
        return None
    shape, offset = compute_local_shape_and_global_offset(
        parameter.shape, parameter.device_mesh, parameter.placements
    )
    return tuple(offset), tuple(shape)


def _inbox_at(tensor: torch.Tensor, box: Box | None) -> torch.Tensor | None:
    """Return a box of a tensor, or None if this rank's shard has not all of it."""
    if box is None:
        return tensor
    local: torch.Tensor = getattr(tensor, "_local_tensor", tensor)
    starts, _ = box_of(tensor) or ((0,) * local.ndim, ())
    with torch._C._DisableTorchDispatch():
        for dim, (begin, size) in enumerate(zip(*box, strict=True)):
            start = begin - starts[dim]
            if size and not 0 <= start <= local.shape[dim] - size:
                return None
            local = torch.Tensor.narrow(local, dim, start if size else 0, size)
    return local


def box_at(detail: Detail, place: int) -> Box | None:
    """Return the box that a rank noted of a parameter."""
    return detail.boxes[place] if place < len(detail.boxes) else None


def sampled_shards(gradient: torch.Tensor, shards: list[tuple[Box | None, int]]) -> Sampled:
    """Return some numbers of a gradient, of each of the ranks' shards as many as the rank picked."""
    if all(box is None for box, _ in shards):
        return sampled(gradient, tuple(size for _, size in shards))
    if getattr(gradient, "_local_tensor", gradient).shape != gradient.shape:
        gradient = gradient.full_tensor()  # type: ignore[attr-defined]  # of one process's ranks
    parts = [sampled(part) for box, _ in shards if (part := _inbox_at(gradient, box)) is not None]
    norm = sum(part.norm**2 for part in parts) ** 0.5
    return Sampled(b"".join(part.data for part in parts), norm, sum(part.size for part in parts))


def put_shards(parameter: Any, shards: list[tuple[Box | None, Kept]], nudge: float) -> bool:
    """Set a parameter to the ranks' shards; return whether they fit."""
    if any(box is not None for box, _ in shards):
        pairs = [(_inbox_at(parameter.detach(), box), part) for box, part in shards]
        return all(put(into, part.data, part.dtype, nudge) for into, part in pairs if into is not None)
    size = getattr(parameter, "_local_tensor", parameter).numel() * parameter.element_size()
    return put(parameter, b"".join(part.data for _, part in shards)[:size], shards[0][1].dtype, nudge)

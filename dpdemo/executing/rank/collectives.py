"""Note each collective before it begins, with all that must be the same on every rank of its group."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from dpdemo.executing.rank.notes import users_line
from dpdemo.running.ranklog import POINT_TO_POINT
from dpdemo.virtual.ops.collectives import flat_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from dpdemo.executing.rank.notes import Notes

_MAX_SHAPES = 8
_OUTPUTS_ALONE = {
    "allgather_",
    "scatter_",
}  # the inputs of all_gather may differ in size, those of scatter are the root's
_INPUTS_ALONE = {"gather_", "reduce_scatter_"}
_ROOT_AT = {"broadcast_": 2, "gather_": 3, "scatter_": 3, "reduce_": 3}
_REDUCE_AT = {
    "allreduce_": 2,
    "allreduce_coalesced_": 2,
    "reduce_": 2,
    "_reduce_scatter_base_": 3,
    "reduce_scatter_": 3,
}


class CollectiveNotes:
    """Numbers the collectives of each group."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.counts: dict[str, int] = {}
        self.names: dict[str, tuple[Any, str]] = {}
        self.by_thread = 0
        self.total = 0

    def __call__(self, name: str, group: Any, args: tuple[Any, ...]) -> None:
        """Note one collective."""
        key = self._key(group)
        number = self.counts[key] = self.counts.get(key, 0) + 1
        self.total += 1
        tensors = [] if name == "barrier" else list(flat_tensors(args))
        event: dict[str, Any] = {
            "n": number,
            "op": name,
            "shapes": [list(one.shape) for one in tensors[:_MAX_SHAPES]],
            "dtype": str(tensors[0].dtype).removeprefix("torch.") if tensors else "",
            "bytes": sum(one.numel() * one.element_size() for one in tensors),
            "group": key,
            "at": users_line(),
            "t": time.time(),
        }
        if name in POINT_TO_POINT:
            event |= {"peer": dist.get_global_rank(group, args[2]) if name != "recv_any_source_" else -1}
            event |= {"tag": args[-1]}
        else:
            event |= _common(name, args, tensors)
            if name in _ROOT_AT:
                event["root"] = dist.get_global_rank(group, args[_ROOT_AT[name]])
        self.notes.write("collective", **event)

    def _key(self, group: Any) -> str:
        """Return the group's name together with its ranks: names begin again with each init_process_group."""
        known = self.names.get(group.group_name)
        if known is not None and known[0] is group:
            return known[1]
        ranks = dist.get_process_group_ranks(group)
        key = f"{group.group_name} of {','.join(map(str, ranks))}"
        self.names[group.group_name] = group, key
        self.notes.write("group", group=key, ranks=ranks)
        return key


def _common(name: str, args: tuple[Any, ...], tensors: list[Tensor]) -> dict[str, Any]:
    """Return what must be the same on all ranks: sizes, and the reduction."""
    values: dict[str, Any] = {}
    if name == "alltoall_base_":
        values["splits"] = [_splits(args[0], args[3]), _splits(args[1], args[4])]
    elif name == "alltoall_":
        values["splits"] = [[one.numel() for one in part] for part in args[:2]]
    elif name != "barrier":
        values["same"] = [_squeezed(one) for one in _compared(name, args, tensors)]
    if name in _REDUCE_AT:
        values["reduce"] = int(args[_REDUCE_AT[name]].op())
    return values


def _compared(name: str, args: tuple[Any, ...], tensors: list[Tensor]) -> list[Tensor]:
    if name in _OUTPUTS_ALONE:
        return list(flat_tensors(args[0]))
    if name in _INPUTS_ALONE:
        return list(flat_tensors(args[1]))
    return tensors


def _squeezed(tensor: Tensor) -> list[int]:
    """Return the shape without sizes of 1, which no collective tells apart."""
    return [size for size in tensor.shape if size != 1]


def _splits(tensor: Tensor, sizes: list[int]) -> list[int]:
    """Return how many elements go to or come from each rank, or of an equal split all of them."""
    row = tensor[0].numel() if tensor.dim() and len(tensor) else 1
    return [size * row for size in sizes] or [tensor.numel()]


def watch(notes: Notes, listeners: list[Callable[..., None]]) -> CollectiveNotes:
    """Note this process's collectives."""
    made = CollectiveNotes(notes)
    listeners.append(made)
    return made

"""Note each collective before it begins, with all that must be the same on every rank of its group."""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch import Tensor

from dpdemo.ranks.events import NEW_GROUP, POINT_TO_POINT, Collective, Group
from dpdemo.ranks.observe.notes import Notes, holders, never_raises, users_line
from dpdemo.virtual.labels import flat_tensors
from dpdemo.virtual.ops.collectives import Call, nccl_groups

_MAX_SHAPES = 8
_LISTED = {"allgather_", "gather_", "scatter_", "reduce_scatter_", "alltoall_"}
"""Their tensors belong to ranks: each receives as many elements as the other sends."""


class CollectiveNotes:
    """Numbers the collectives of each group."""

    def __init__(self, notes: Notes, backward_passes: Callable[[], int]) -> None:
        self.notes, self.backward_passes = notes, backward_passes
        self.counts: dict[str, int] = {}
        self.names: dict[str, tuple[Any, str]] = {}
        self.total = 0

    def __call__(self, call: Call) -> None:
        """Note one collective."""
        name, group = call.name, call.group
        self.total += name not in POINT_TO_POINT
        tensors = [] if name == "barrier" else list(flat_tensors(call.args))
        event: dict[str, Any] = {
            "shapes": tuple(tuple(tensor.shape) for tensor in tensors[:_MAX_SHAPES]),
            "dtype": str(tensors[0].dtype).removeprefix("torch.") if tensors else "",
            "bytes": sum(tensor.numel() * tensor.element_size() for tensor in tensors),
        }
        if name in POINT_TO_POINT:
            any_rank = name == "recv_any_source_"
            event["peer"] = -1 if any_rank else dist.get_global_rank(group, call.args[2])
            event["tag"] = 0 if group.group_name in nccl_groups else call.args[-1]  # NCCL has no tags
        else:
            event |= _common(call, tensors)
        self._write(self._key(group), name, **event)

    def _write(self, key: str, op: str, **values: Any) -> None:
        """Note the next collective of a group."""
        number = self.counts[key] = self.counts.get(key, 0) + 1
        made = Collective(key, number, op, users_line(), backward=self.backward_passes(), **values)
        self.notes.write(made)

    @never_raises
    def made_group(self, op: str, ranks: Any, members: list[int], **same: Any) -> None:
        """Note that a group is made: all `members` have to make it, with the `same` values."""
        key = f"{NEW_GROUP} {','.join(map(str, members))}"
        if key not in self.counts:
            self.notes.write(Group(key, tuple(members)))
        self._write(key, op, members=members, ranks=ranks, **same)

    def _key(self, group: Any) -> str:
        """Return the group's name together with its ranks: names begin again with each init_process_group."""
        known = self.names.get(group.group_name)
        if known is not None and known[0] is group:
            return known[1]
        ranks = dist.get_process_group_ranks(group)
        key = f"{group.group_name} of {','.join(map(str, ranks))}"
        self.names[group.group_name] = group, key
        self.notes.write(Group(key, tuple(ranks)))
        return key


def _common(call: Call, tensors: list[Tensor]) -> dict[str, Any]:
    """Return what must be the same on all ranks, or fit: sizes, root and reduction."""
    values: dict[str, Any] = {}
    args, root = call.args, None if call.root_at is None else call.args[call.root_at]
    if call.name == "alltoall_base_":
        values["splits"] = [_splits(args[0], args[3]), _splits(args[1], args[4])]
    elif call.name in _LISTED:
        values["splits"] = [_by_rank(part, call.group, root) for part in args[:2]]
    elif call.name != "barrier":
        values["same"] = [[size for size in tensor.shape if size != 1] for tensor in tensors]
    if root is not None:
        values["root"] = dist.get_global_rank(call.group, root)
    if call.reduction is not None:
        values["reduce"] = dist.ReduceOp.RedOpType(call.reduction).name
    return values


def _by_rank(given: Any, group: Any, root: int | None) -> list[int]:
    """Return how many elements each rank sends or gets: a list has a tensor for each, one tensor is for all.

    With a root, one tensor is the root's, and no tensor nobody's.
    """
    sizes = [tensor.numel() for tensor in flat_tensors(given)]
    if len(sizes) == group.size() and (root is None or group.rank() == root):
        return sizes
    alone = sizes[0] if sizes else 0
    return [alone if root is None or rank == root else 0 for rank in range(group.size())]


def _splits(tensor: Tensor, sizes: list[int]) -> list[int]:
    """Return how many elements go to or come from each rank, or of an equal split all of them."""
    row = tensor[0].numel() if tensor.dim() and len(tensor) else 1
    return [size * row for size in sizes] or [tensor.numel()]


def watch(notes: Notes, backward_passes: Callable[[], int]) -> CollectiveNotes:
    """Note this process's collectives, and the groups that it makes."""
    made = CollectiveNotes(notes, backward_passes)
    c10d: Any = dist.distributed_c10d

    @notes.around(c10d, "_new_group_with_tag", why="all ranks have to make a group")
    def new_group(make: Any, /, ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        everyone = list(range(dist.get_world_size()))
        chosen = everyone if ranks is None else sorted(ranks)
        if kwargs.get("use_local_synchronization"):  # torch names the group by how many there are
            made.made_group("new_group", chosen, chosen, groups=len(c10d._world.pg_names))
        else:
            made.made_group("new_group", chosen, everyone)
        return make(ranks, *args, **kwargs)

    @notes.around(holders("split_group"), "split_group", why="all ranks have to split a group")
    def split_group(
        split: Any, /, parent_pg: Any = None, split_ranks: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        made.made_group("split_group", split_ranks, dist.get_process_group_ranks(parent_pg))
        return split(parent_pg, split_ranks, *args, **kwargs)

    return made

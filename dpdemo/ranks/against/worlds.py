"""Meshes, groups and libraries that name a number of ranks, on the one process that has no others."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.distributed import device_mesh as meshes
from torch.distributed.tensor import parallel
from torch.utils.data.distributed import DistributedSampler

from dpdemo.ranks.observe.notes import around, never_raises
from dpdemo.startup.hook import when_imported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpdemo.ranks.against.state import State

_LIGHTNING = ("lightning.fabric", "lightning_fabric")


def note_owner(state: State) -> None:
    """Note which rank has the same rows as this one: the first of those that tensor parallelism joins."""

    @around(parallel, "parallelize_module")
    def parallelize(run: Any, /, module: Any, device_mesh: Any = None, *args: Any, **kwargs: Any) -> Any:
        out = run(module, device_mesh, *args, **kwargs)
        if device_mesh is not None:
            state.owner = int(device_mesh.mesh.min())
        return out


def let_run_alone(state: State) -> None:
    """Make meshes, groups, samplers and Lightning use one rank; the rows come from the ranks' notes.

    Where tensor parallelism needs its ranks, meshes and groups have those alone.
    """
    for package in _LIGHTNING:
        when_imported(f"{package}.plugins.environments.torchelastic", _without_validation)

    @around(meshes, "init_device_mesh")
    def init_device_mesh(make: Any, /, device_type: str, mesh_shape: Any, **kwargs: Any) -> Any:
        joined = _joined(state)
        if math.prod(mesh_shape) != len(joined):
            mesh_shape = _shape_of(joined, mesh_shape, state.settings.num_ranks)
        return make(device_type, mesh_shape, **kwargs)

    @around(dist.distributed_c10d, "new_group")
    def new_group(make: Any, /, ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        if ranks is None:
            return make(None, *args, **kwargs)
        # FSDP groups the GPUs of the same number on all machines: with one rank, most groups are empty
        mine = [place for place, rank in enumerate(_joined(state)) if rank in ranks or not len(ranks)]
        return make(mine, *args, **kwargs) if mine else dist.GroupMember.NON_GROUP_MEMBER

    @around(dist.distributed_c10d, "new_subgroups")
    def new_subgroups(make: Any, /, group_size: int | None = None, *args: Any, **kwargs: Any) -> Any:
        size = len(_joined(state))
        return make(min(group_size or size, size), *args, **kwargs)

    @around(DistributedSampler, "__init__")
    def sampler(init: Any, /, self: Any, dataset: Any, *_: Any, **kwargs: Any) -> None:
        init(self, dataset, **{**kwargs, "num_replicas": 1, "rank": 0})

    vars(dist).update(init_device_mesh=init_device_mesh, new_group=new_group, new_subgroups=new_subgroups)


def _joined(state: State) -> list[int]:
    """Return the ranks that this run's own stand for."""
    size = int(os.environ.get("WORLD_SIZE", "1"))  # a mesh may be made first, which makes the process group
    return state.ranks.group if size > 1 else [0]


def _shape_of(joined: list[int], shape: Sequence[int], num_ranks: int) -> tuple[int, ...]:
    """Return the shape of a mesh of some of its ranks: a dimension in which they do not differ has one."""
    if math.prod(shape) != num_ranks:
        return (1,) * len(shape)
    found, step = [], num_ranks
    for size in shape:
        step //= size
        found.append(len({rank // step % size for rank in joined}))
    return tuple(found)


def mark_partitions() -> None:
    """Mark the flat partitions that DeepSpeed's ZeRO 1 and 2 make steps with: each rank has one."""

    @never_raises
    def follow(module: Any) -> None:
        @around(module.DeepSpeedZeroOptimizer, "__init__")
        def made(init: Any, /, self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)
            for partition in self.single_partition_of_fp32_groups:
                partition._fsdp_flattened = True

    when_imported("deepspeed.runtime.zero.stage_1_and_2", follow)


@never_raises
def _without_validation(module: Any) -> None:
    module.TorchElasticEnvironment.validate_settings = lambda *_, **__: None

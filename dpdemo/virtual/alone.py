"""One rank of many, alone: the other ranks do not run, and collectives move nothing.

`with one_of_many(8):` inside an open block of virtual GPUs makes this process rank 0 of 8.
DistributedDataParallel and `fully_shard` run as they do on that rank: same buckets, shards and gathered
blocks, so the ledger counts the same bytes. A collective is done at once. Its outputs keep the numbers that
they had, except that a gather repeats this rank's own: conclude nothing from numbers.
"""

import contextlib
import functools
import os
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.modules._functions import SyncBatchNorm

from dpdemo.virtual import state
from dpdemo.virtual.applying import Attribute, Patch, always, applied
from dpdemo.virtual.blocks import Kind
from dpdemo.virtual.kinds import mark_all, noting_blocks
from dpdemo.virtual.labels import flat_tensors
from dpdemo.virtual.ops.collectives import Call

_c10d: Any = dist.distributed_c10d
_cpp: Any = torch._C._distributed_c10d
_is_meta: Any = torch._C.TensorBase.is_meta
_GATHERS = {"allgather_", "_allgather_base_", "alltoall_", "gather_"}


class DoneWork(_cpp.Work):  # type: ignore[misc]
    """A collective that is over; its future holds the tensors, since the reducer takes them from there.

    It releases them at once: a work that kept its tensors would keep DistributedDataParallel's old buckets.
    """

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self.tensors: list[torch.Tensor] | None = tensors

    def wait(self, timeout: Any = None) -> bool:  # noqa: ARG002 - PyTorch's own
        """Return at once."""
        self.tensors = None
        return True

    def is_completed(self) -> bool:
        """Return True."""
        return True

    is_success = is_completed

    def get_future(self) -> Any:
        """Return a future that holds the tensors."""
        future: Any = torch.futures.Future()
        future.set_result(self.tensors)
        self.tensors = None
        return future


_recent: deque[DoneWork] = deque(maxlen=1024)
"""pybind11 forgets that a work is one of Python's unless somebody holds it."""


def finish(call: Call) -> Any:
    """Return what a collective returns, without any other rank."""
    outputs = call.args[0]
    tensors = list(flat_tensors(outputs)) if isinstance(outputs, (list, tuple, torch.Tensor)) else []
    if call.name == "_allgather_base_":
        mark_all(tensors, Kind.GATHERED_BLOCK)
    if call.name in _GATHERS:
        _repeat_own(tensors, list(flat_tensors(call.args[1])))
    work = DoneWork(tensors)
    _recent.append(work)
    return work.boxed() if len(call.func._schema.returns) == 1 else (outputs, work.boxed())


def _repeat_own(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> None:
    """Fill gathered tensors that have numbers, such as pickled objects on the host, with this rank's own."""
    if not inputs or any(_is_meta.__get__(tensor) for tensor in (*outputs, *inputs)):
        return
    own = inputs[0].reshape(-1)
    for output in outputs:
        if own.numel() and output.numel() % own.numel() == 0 and output.is_contiguous():
            output.view(-1, own.numel()).copy_(own.expand(output.numel() // own.numel(), -1))


@contextlib.contextmanager
def one_of_many(world_size: int, rank: int = 0, *, gpus_per_node: int | None = None) -> Iterator[None]:
    """Make this process one rank of `world_size`, on its own GPU, for the length of a `with` block.

    Raises:
        VirtualGpuError: outside any block of virtual GPUs.

    """
    from torch.testing._internal.distributed.fake_pg import FakeStore  # it registers the backend

    session = state.the_session()
    local = rank % (gpus_per_node or world_size)
    with contextlib.ExitStack() as block:
        block.enter_context(_environment(world_size, rank, local, gpus_per_node or world_size))
        block.enter_context(_setting(session, "finish_alone", value=finish))
        torch.cuda.set_device(local)
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)
        block.callback(_destroy)
        block.enter_context(applied(_patches(block)))
        yield


def _destroy() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
    _recent.clear()


@contextlib.contextmanager
def _setting(owner: Any, name: str, *, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def _environment(world_size: int, rank: int, local: int, per_node: int) -> Iterator[None]:
    """Set the variables by which torchrun tells a rank who it is."""
    told = {
        "RANK": rank, "WORLD_SIZE": world_size, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": per_node,
        "GROUP_RANK": rank // per_node, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500,
    }  # fmt: skip
    before = {name: os.environ.get(name) for name in told}
    os.environ.update({name: str(value) for name, value in told.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _patches(block: contextlib.ExitStack) -> list[Patch]:
    made, meshed = _begin_group(_c10d.init_process_group), _patching(DeviceMesh.__init__, block)
    return [
        Patch(DeviceMesh, "__init__", meshed, "who shards makes one first, and others need no DTensor"),
        *(Patch(owner, "init_process_group", made, "the group exists already") for owner in (_c10d, dist)),
        Patch(
            SyncBatchNorm,
            "forward",
            staticmethod(_during("selects_all", SyncBatchNorm.forward)),
            "it leaves out ranks without rows, and no number shows that all have some",
        ),
        Patch(
            _cpp.Logger, "set_runtime_stats_and_log", always(None), "it warns of devices that it cannot time"
        ),
    ]


def _patching(original: Callable[..., Any], block: contextlib.ExitStack) -> Callable[..., Any]:
    """Patch DTensor and `fully_shard` once a mesh is made: importing them takes as long as torch."""
    is_patched = False

    @functools.wraps(original)
    def make(self: DeviceMesh, *args: Any, **kwargs: Any) -> None:
        nonlocal is_patched
        if not is_patched:
            is_patched = True
            block.enter_context(applied(_of_shards()))
        original(self, *args, **kwargs)
        if self.ndim > 1:
            block.callback(_forget_meshes)

    return make


def _forget_meshes() -> None:
    """Clear DTensor's cache, which names the groups of a mesh: an equal mesh has others later."""
    from torch.distributed.tensor import debug

    debug._clear_sharding_prop_cache()  # type: ignore[no-untyped-call]


def _begin_group(original: Callable[..., Any]) -> Callable[..., Any]:
    """Ignore a program's own start of the group that it is in, as under torchrun it must start one."""

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        return None if dist.is_initialized() else original(*args, **kwargs)

    return init_process_group


def _of_shards() -> list[Patch]:
    """Patch DTensor and `fully_shard`, which look at shapes and at meta tensors in ways of their own."""
    from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    shapes = "_propagate_tensor_meta_non_cached"
    reading = [
        (FSDPParam, "_init_sharded_param"),
        (FSDPParam, "reset_sharded_param"),
        (FSDPParamGroup, "_validate_no_meta_params"),
    ]
    return [
        Patch(
            ShardingPropagator,
            shapes,
            _during("sees_as_cpp", getattr(ShardingPropagator, shapes)),
            "its meta tensors belong to no GPU",
        ),
        *(
            Patch(
                owner, name, _during("hides_meta", getattr(owner, name)), "a GPU's tensor is no meta tensor"
            )
            for owner, name in reading
            if hasattr(owner, name)
        ),
        Patch(
            FSDPParam,
            "init_all_gather_outputs",
            noting_blocks(FSDPParam.init_all_gather_outputs),
            "the ledger tells gathered blocks from other tensors",
        ),
        Patch(torch.Tensor, "is_meta", Attribute(_seen_as_meta), "a GPU's tensor is no meta tensor"),
    ]


def _during(fact: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Run a function with one of the thread's facts true, unless the GPUs are suspended."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        here = state.session
        with here.current.having(fact, value=True) if here else contextlib.nullcontext():
            return original(*args, **kwargs)

    return call


def _seen_as_meta(tensor: torch.Tensor) -> bool:
    here = state.session
    return not (here and here.current.hides_meta) and bool(_is_meta.__get__(tensor))

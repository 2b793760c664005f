"""The backend "nccl" of torch.distributed, over gloo: programs written for NCCL run unmodified.

`ProcessGroupNCCL` keeps its name, its options and its time-out, so that `get_backend()` is "nccl" and
`isinstance` holds; what it does is gloo's. It is registered for "cuda" and also for "cpu", since C++ sees
tensors of the CPU. The collectives themselves pass through `ops/c10d.py`.

It promises no bandwidth, no overlap and not NCCL's order of sums.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import constants, rpc

from dpdemo.virtual.applying import always, replace, stands_in, wraps
from dpdemo.virtual.kinds import after_backward
from dpdemo.virtual.labels import flat_tensors, gpu_of, label_of, stamp
from dpdemo.virtual.ops import c10d, pending  # noqa: F401 - c10d registers, and pending: after cuda_build
from dpdemo.virtual.ops.collectives import gpu_of_group
from dpdemo.virtual.process_groups import (
    HAS_SECOND,
    TIMEOUT,
    ProcessGroupNCCL,
    ProcessGroupNCCL2,
    ProcessGroupNCCLLazy,
    refuse,
)
from dpdemo.virtual.state import the_session
from dpdemo.virtual.threads import seeing_gpus

_WHY = "NCCL's name over gloo"
after_backward.append(pending.forget)  # what DistributedDataParallel waits for in C++
_c10d: Any = dist.distributed_c10d
_cpp: Any = torch._C._distributed_c10d

replace(_c10d, _WHY, _NCCL_AVAILABLE=True, default_pg_nccl_timeout=TIMEOUT)
replace(constants, _WHY, default_pg_nccl_timeout=TIMEOUT)
_implementations = {"ProcessGroupNCCL": ProcessGroupNCCL}
if HAS_SECOND:
    _implementations |= {"ProcessGroupNCCL2": ProcessGroupNCCL2, "ProcessGroupNCCLLazy": ProcessGroupNCCLLazy}
for _owner in (_c10d, dist, _cpp):
    replace(_owner, _WHY, **_implementations)
for _owner in (_c10d, dist):
    replace(_owner, _WHY, is_nccl_available=always(True))
replace(_cpp.Work, "it needs a CUDA stream", block_current_stream=lambda self: self.wait() and None)


@stands_in(_cpp, "_hash_tensors", why="only a build with NCCL has it")
def _hash_tensors(tensors: list[torch.Tensor]) -> int:
    """Return a number for debug logs of objects that are sent."""
    return hash(str([tensor.tolist() for tensor in tensors]))


@stands_in(
    _cpp._SymmetricMemory,
    *("empty_strided_p2p", "rendezvous", "get_mempool_allocator"),
    why="it needs the GPUs of other processes",
    form=staticmethod,
)
def _no_symmetric_memory(*_: Any, **__: Any) -> Any:
    return refuse("symmetric memory")


if rpc.is_available():

    @stands_in(rpc, "init_rpc", why="C++ answers calls on threads of its own, which see no GPU")
    def _no_remote_calls(*_: Any, **__: Any) -> Any:
        return refuse("torch.distributed.rpc")


@wraps(dist, "_broadcast_coalesced", why="C++ sees one device")
def _by_device(original: Callable[..., Any]) -> Callable[..., Any]:
    """Broadcast the parameters of each GPU by themselves: C++ flattens those that it sees on one device."""

    @functools.wraps(original)
    def broadcast(group: Any, tensors: list[torch.Tensor], size: int, src: int = 0) -> None:
        devices: dict[torch.device, list[torch.Tensor]] = {}
        for tensor in tensors:
            devices.setdefault(tensor.device, []).append(tensor)
        for on_one in devices.values():
            original(group, on_one, size, src)
        pending.forget()

    return broadcast


@wraps(dist, "_verify_params_across_processes", why="C++ makes tensors on the GPU of the parameters")
def _on_their_gpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """Remember on which GPU a DistributedDataParallel is: the program may never have called set_device."""

    @functools.wraps(original)
    def verify(group: Any, tensors: list[torch.Tensor], *args: Any) -> Any:
        label = label_of(tensors[0], the_session().key) if tensors else None
        if label is not None:
            gpu_of_group[group.group_name] = label.index
        if the_session().finish_alone is not None:
            return None  # it compares numbers with the other ranks
        return original(group, tensors, *args)

    return verify


@wraps(_cpp.Reducer, "__init__", why="C++ sees one device")
def _with_a_bucket_each(original: Callable[..., Any]) -> Callable[..., Any]:
    """Put each parameter in its own bucket if a model is on several GPUs: C++ would mix them in one.

    The reducer makes new buckets after the first step; with a limit of one byte they hold one parameter each.
    """

    @functools.wraps(original)
    def init(
        self: Any, parameters: list[torch.Tensor], buckets: list[list[int]], limits: list[int], *others: Any
    ) -> None:
        if len({parameter.device for parameter in parameters}) > 1:
            buckets = [[index] for bucket in buckets for index in bucket]
            limits = [1] * len(buckets)
            group, is_sparse, _, finds_unused, is_view, names, _, *rest = others
            rest = [[] if isinstance(each, list) else each for each in rest]  # limits of the later buckets
            others = (group, is_sparse, 1, finds_unused, is_view, names, 1, *rest)
        gpus = {gpu_of(parameter) for parameter in parameters}
        _homes[id(self)] = gpus.pop() if len(gpus) == 1 else None
        with _making_buckets(self):
            original(self, parameters, buckets, limits, *others)

    return init


_homes: dict[int, int | None] = {}
"""By reducer, the GPU of all its parameters; None if they are on several, or on the host."""


def _making_buckets(reducer: Any) -> contextlib.AbstractContextManager[None]:
    """Count the buckets that a reducer makes in a `with` block; elsewhere a collective shows them."""
    session = the_session()
    is_here = _homes.get(id(reducer)) == session.current.index
    return session.current.having("makes_buckets", session.finish_alone is not None or is_here)


@wraps(_cpp.Reducer, "_rebuild_buckets", why="C++ makes tensors without saying where")
def _counting_them(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def rebuild(self: Any) -> Any:
        with _making_buckets(self):
            rebuilt = original(self)
        pending.forget()
        return rebuilt

    return rebuild


@wraps(_cpp.GradBucket, "buffer", "gradients", why="C++ made the bucket")
def _labelled(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get(self: Any) -> Any:
        result, session = original(self), the_session()
        for tensor in flat_tensors(result):
            if label_of(tensor, session.key) is None:
                stamp(tensor, session, session.current.index)
        return result

    return get


@wraps(torch._C.Future, "then", "add_done_callback", why="it runs on gloo's threads")
def _on_gpus(original: Callable[..., Any]) -> Callable[..., Any]:
    """Give the thread that runs a future's callback the GPUs of the one that added it."""

    @functools.wraps(original)
    def add(self: Any, callback: Any) -> Any:
        index = the_session().current.index

        def called(future: Any) -> Any:
            with seeing_gpus(index), pending.callback():
                return callback(future)

        return original(self, called)

    return add

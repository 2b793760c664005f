"""The backend "nccl" of torch.distributed, over gloo: programs written for NCCL run unmodified.

`ProcessGroupNCCL` keeps its name, its options and its time-out, so that `get_backend()` is "nccl" and
`isinstance` holds; what it does is gloo's. It is registered for "cuda" and also for "cpu", since C++ sees
tensors of the CPU. The collectives themselves pass through `ops/collectives.py`.

It promises no bandwidth, no overlap and not NCCL's order of sums.
"""

from __future__ import annotations

import copy
import functools
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from dpdemo.virtual.applying import Patch, group
from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.labels import label_of, stamp
from dpdemo.virtual.ops.collectives import coalesced, flat_tensors, nccl_groups
from dpdemo.virtual.ops.dispatch import VirtualGpuMode
from dpdemo.virtual.state import the_session

if TYPE_CHECKING:
    from collections.abc import Callable

_WHY = "NCCL's name over gloo"
_TIMEOUT = timedelta(minutes=10)
_OF_SYMMETRIC_MEMORY = ("empty_strided_p2p", "rendezvous", "get_mempool_allocator")
_num_splits: dict[str, int] = {}
"""By name of a group, how often groups were split off it."""


class _Config(dict[str, Any]):
    """ncclConfig_t: settings that change nothing here."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class Options:
    """Stand in for `ProcessGroupNCCL.Options`."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream
        self.config = _Config()
        self._timeout = _TIMEOUT
        self.global_ranks_in_group: list[int] = []
        self.group_name, self.backend = "", "nccl"
        self.split_from: Any = None
        self.split_color = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Options:
        """Share the group that it was split off: C++'s objects cannot be copied."""
        new = copy.copy(self)
        new.config = _Config(self.config)
        return new


@functools.cache
def _process_group_class() -> Any:  # noqa: C901 - a method for each of NCCL's
    """Make the class when it is first needed: a build without torch.distributed has no gloo."""
    c10d: Any = torch._C._distributed_c10d

    class ProcessGroupNCCL(c10d.ProcessGroupGloo):  # type: ignore[misc]
        """NCCL by name, gloo in fact."""

        NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_EFFICIENCY, NCCL_CTA_POLICY_ZERO = 0, 1, 2
        supports_splitting = True
        bound_device_id = None
        uid = 0

        def __init__(self, store: Any, rank: int, size: int, options: Options | None = None) -> None:
            self.nccl_options = options or Options()
            super().__init__(store, rank, size, timeout=self.nccl_options._timeout)

        options = property(lambda self: self.nccl_options)

        def name(self) -> str:
            return "nccl"

        def eager_connect_single_device(self, device: Any) -> None:
            """Connect at once: gloo is connected already."""

        def perform_nocolor_split(self, device: Any) -> None:
            """Take no part in a split."""

        def comm_split_count(self) -> int:
            return 0

        def get_error(self) -> None:
            return None

        def abort(self) -> None:
            self.shutdown()

        @property
        def mem_allocator(self) -> Any:
            return _refuse("NCCL's memory pools")

        def register_mem_pool(self, *_: Any, **__: Any) -> Any:
            return _refuse("NCCL's memory pools")

        def _group_start(self) -> None: ...
        def _group_end(self) -> None: ...
        def _add_ephemeral_timeout(self, timeout: Any) -> None: ...

        def _is_initialized(self) -> bool:
            return True

        def _verify_work_timeout(self, work: Any, timeout: Any) -> bool:  # noqa: ARG002 - PyTorch's own
            return True

        def _get_timeout(self) -> timedelta:
            return self.nccl_options._timeout

    ProcessGroupNCCL.Options = Options
    ProcessGroupNCCL.__module__ = "torch.distributed.distributed_c10d"
    ProcessGroupNCCL.__qualname__ = "ProcessGroupNCCL"
    return ProcessGroupNCCL


def patches() -> list[Patch]:
    """Return what makes torch.distributed offer NCCL; nothing in a build without it."""
    if not dist.is_available() or not dist.is_gloo_available():
        return []
    import torch.distributed.constants as constants  # noqa: PLR0402 - a module of values

    c10d: Any = dist.distributed_c10d
    cpp: Any = torch._C._distributed_c10d
    kind = _process_group_class()
    return [
        *group(c10d, _WHY, _NCCL_AVAILABLE=True, default_pg_nccl_timeout=_TIMEOUT),
        *group(constants, _WHY, default_pg_nccl_timeout=_TIMEOUT),
        *[Patch(owner, "ProcessGroupNCCL", kind, _WHY) for owner in (c10d, dist, cpp)],
        *[Patch(owner, "is_nccl_available", _yes, _WHY) for owner in (c10d, dist)],
        *_makers(c10d),
        *_of_groups(cpp),
        *group(
            cpp._SymmetricMemory,
            "it needs the GPUs of other processes",
            **dict.fromkeys(_OF_SYMMETRIC_MEMORY, staticmethod(_no_symmetric_memory)),
        ),
        *group(dist, "C++ sees one device", _broadcast_coalesced=_by_device(cpp._broadcast_coalesced)),
        *_functions(c10d),
        *group(cpp.Work, "it needs a CUDA stream", block_current_stream=lambda self: self.wait() and None),
        *[
            Patch(
                torch._C.Future, name, _on_gpus(getattr(torch._C.Future, name)), "it runs on gloo's threads"
            )
            for name in ("then", "add_done_callback")
        ],
        *[
            Patch(cpp.GradBucket, name, _labelled(getattr(cpp.GradBucket, name)), "C++ made the bucket")
            for name in ("buffer", "gradients")
        ],
    ]


def _makers(c10d: Any) -> list[Patch]:
    """Create our backend under each of NCCL's names, which torch 2.15 looks up in a table."""
    others = [
        name
        for name in ("_create_nccl2_process_group", "_create_nccl_lazy_process_group")
        if hasattr(c10d, name)
    ]
    if not others:
        return []
    kept = {name: maker for name, maker in c10d.Backend._plugins.items() if not name.startswith("NCCL")}
    return [
        *[Patch(c10d, name, c10d._create_nccl_process_group, _WHY) for name in others],
        Patch(c10d.Backend, "_plugins", kept, _WHY),
    ]


def _yes() -> bool:
    return True


def _refuse(what: str) -> Any:
    raise UnsupportedOpError(f"{what}: each rank's virtual GPUs are memory of its own process")


def _no_symmetric_memory(*_: Any, **__: Any) -> Any:
    return _refuse("symmetric memory")


def _of_groups(cpp: Any) -> list[Patch]:  # noqa: C901 - functions that share what is registered
    """Register NCCL for tensors that C++ sees on the CPU, and run coalesced collectives one by one."""
    register, kinds = cpp.ProcessGroup._register_backend, cpp.ProcessGroup._device_types
    kept: list[Any] = []

    def _register_backend(self: Any, device: torch.device, kind: Any, backend: Any = None) -> None:
        kept.append(backend)  # pybind11 would forget that it is a ProcessGroupNCCL
        register(self, device, kind, backend)
        if device.type == "cuda" and not any(each.type == "cpu" for each in kinds.__get__(self)):
            register(self, torch.device("cpu"), kind, backend)
            only_gpu.add(id(self))
            kept.append(self)
        elif device.type == "cpu":
            only_gpu.discard(id(self))

    only_gpu: set[int] = set()

    def _device_types(self: Any) -> list[torch.device]:
        found = kinds.__get__(self)
        return [device for device in found if device.type != "cpu"] if id(self) in only_gpu else list(found)

    set_name = cpp.ProcessGroup._set_group_name

    def _set_group_name(self: Any, name: str) -> None:
        set_name(self, name)
        (nccl_groups.add if id(self) in only_gpu else nccl_groups.discard)(name)

    class Done(cpp.Work):  # type: ignore[misc]
        def __init__(self, works: list[Any]) -> None:
            super().__init__()
            self.works = works

        def wait(self, timeout: Any = None) -> bool:  # noqa: ARG002 - PyTorch's own
            for work in self.works:
                work.wait()
            return True

        def is_completed(self) -> bool:
            return True

    def _start_coalescing(self: Any, device: Any) -> None:  # noqa: ARG001 - PyTorch's own
        coalesced[self.group_name] = []

    def _end_coalescing(self: Any, device: Any) -> Any:  # noqa: ARG001 - PyTorch's own
        works = [
            cpp.Work.unbox(work) if isinstance(work, torch.ScriptObject) else work
            for work in coalesced.pop(self.group_name, [])
        ]
        return Done(works)

    return [
        *group(
            cpp.ProcessGroup,
            "gloo's C++ cannot split off a group that has NCCL's name",
            split_group=lambda self, *args, **kwargs: _split_group(cpp, self, *args, **kwargs),
        ),
        *group(
            cpp.ProcessGroup,
            "C++ sees tensors of the CPU",
            _register_backend=_register_backend,
            _device_types=property(_device_types),
            _set_group_name=_set_group_name,
        ),
        *group(
            cpp.ProcessGroup,
            "gloo does not coalesce",
            _start_coalescing=_start_coalescing,
            _end_coalescing=_end_coalescing,
        ),
    ]


def _split_group(  # noqa: PLR0913, PLR0917 - PyTorch's own
    cpp: Any,
    self: Any,
    ranks: list[int],
    timeout: timedelta | None = None,
    opts: Options | None = None,
    group_name: str = "",
    group_desc: str | None = None,
    device_types: list[torch.device] | None = None,
) -> Any:
    """Make a group of some ranks of this one, with backends of the same kinds."""
    number = _num_splits[self.group_name] = _num_splits.get(self.group_name, 0) + 1
    if self.rank() not in ranks:
        return None
    rank, size = ranks.index(self.rank()), len(ranks)
    # the group's name may differ between ranks, which ncclCommSplit does not mind
    store = cpp.PrefixStore(f"split {number} {ranks}/", self.get_group_store())
    made = cpp.ProcessGroup(store, rank, size)
    for device in device_types or self._device_types:
        below = cpp.PrefixStore(f"{device}/", store)
        if isinstance(self._get_backend(device), _process_group_class()):
            backend, kind = _process_group_class()(below, rank, size, opts), cpp.ProcessGroup.BackendType.NCCL
        else:
            backend = dist.ProcessGroupGloo(below, rank, size, timeout=timeout or _TIMEOUT)
            kind = cpp.ProcessGroup.BackendType.GLOO
        backend._set_sequence_number_for_group()
        made._set_default_backend(kind)
        made._register_backend(device, kind, backend)
    made._set_group_name(group_name)
    made._set_group_desc(group_desc or "")
    return made


def _by_device(original: Callable[..., Any]) -> Callable[..., Any]:
    """Broadcast the parameters of each GPU by themselves: C++ flattens those that it sees on one device."""

    @functools.wraps(original)
    def broadcast(group: Any, tensors: list[torch.Tensor], size: int, src: int = 0) -> None:
        devices: dict[torch.device, list[torch.Tensor]] = {}
        for tensor in tensors:
            devices.setdefault(tensor.device, []).append(tensor)
        for on_one in devices.values():
            original(group, on_one, size, src)

    return broadcast


def _labelled(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def get(self: Any) -> Any:
        result, session = original(self), the_session()
        for tensor in flat_tensors(result):
            if label_of(tensor, session.key) is None:
                stamp(tensor, session, session.current.index)
        return result

    return get


def _on_gpus(original: Callable[..., Any]) -> Callable[..., Any]:
    """Give the thread that runs a future's callback the GPUs of the one that added it."""

    @functools.wraps(original)
    def add(self: Any, callback: Any) -> Any:
        session = the_session()
        index = session.current.index

        def called(future: Any) -> Any:
            if torch._C._len_torch_dispatch_stack():
                return callback(future)
            session.current.inside, session.current.index = True, index
            with VirtualGpuMode(session):
                return callback(future)

        return original(self, called)

    return add


_REDUCED = ("all_reduce", "reduce", "reduce_scatter_tensor", "reduce_scatter_single", "reduce_scatter")


def _functions(c10d: Any) -> list[Patch]:
    made = {name: _multiplying(getattr(c10d, name)) for name in _REDUCED if hasattr(c10d, name)}
    return [
        Patch(owner, name, function, "gloo has no PREMUL_SUM")
        for name, function in made.items()
        for owner in (c10d, dist)
    ]


def _multiplying(original: Callable[..., Any]) -> Callable[..., Any]:
    """Multiply before the sum where PREMUL_SUM is asked for."""
    import inspect

    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        given = bound.arguments
        operation: Any = given.get("op")
        if getattr(operation, "op", None) != dist.ReduceOp.PREMUL_SUM:
            return original(*args, **kwargs)
        source = next(name for name in ("input", "input_list", "tensor") if name in given)
        scaled = [tensor.mul(operation.factor) for tensor in flat_tensors(given[source])]
        if source == "tensor":
            given["tensor"].copy_(scaled[0])
        else:
            given[source] = scaled if isinstance(given[source], list) else scaled[0]
        given["op"] = dist.ReduceOp.SUM
        return original(*bound.args, **bound.kwargs)

    return call

"""The backend "nccl" of torch.distributed, over gloo: programs written for NCCL run unmodified.

`ProcessGroupNCCL` keeps its name, its options and its time-out, so that `get_backend()` is "nccl" and
`isinstance` holds; what it does is gloo's. It is registered for "cuda" and also for "cpu", since C++ sees
tensors of the CPU. The collectives themselves pass through `ops/collectives.py`.

It promises no bandwidth, no overlap and not NCCL's order of sums.
"""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from dpdemo.virtual.applying import Patch, group
from dpdemo.virtual.labels import label_of, stamp
from dpdemo.virtual.ops.collectives import coalesced, flat_tensors, nccl_groups
from dpdemo.virtual.ops.dispatch import VirtualGpuMode
from dpdemo.virtual.state import the_session

if TYPE_CHECKING:
    from collections.abc import Callable

_WHY = "NCCL's name over gloo"
_TIMEOUT = timedelta(minutes=10)


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


@functools.cache
def _process_group_class() -> Any:  # noqa: C901 - a method for each of NCCL's
    """Make the class when it is first needed: a build without torch.distributed has no gloo."""
    c10d: Any = torch._C._distributed_c10d

    class ProcessGroupNCCL(c10d.ProcessGroupGloo):  # type: ignore[misc]
        """NCCL by name, gloo in fact."""

        NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_EFFICIENCY, NCCL_CTA_POLICY_ZERO = 0, 1, 2
        supports_splitting = False
        bound_device_id = None
        uid = 0

        def __init__(self, store: Any, rank: int, size: int, options: Options | None = None) -> None:
            self.nccl_options = options or Options()
            super().__init__(store, rank, size, timeout=self.nccl_options._timeout)

        options = property(lambda self: self.nccl_options)

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
        *_of_groups(cpp),
        *group(dist, "C++ sees one device", _broadcast_coalesced=_by_device(cpp._broadcast_coalesced)),
        *_functions(c10d),
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


def _yes() -> bool:
    return True


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
            "gloo's C++ cannot split off a group that has NCCL's name: PyTorch makes a new one instead",
            bound_device_id=property(lambda _: None, lambda *_: None),
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
_CHECKED = (
    *("broadcast", "all_gather", "all_gather_into_tensor", "all_gather_single", "all_to_all_single"),
    *("all_to_all", "send", "recv", "isend", "irecv", "scatter", "gather"),
)
_BITWISE = {dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR} if dist.is_available() else set()


def _functions(c10d: Any) -> list[Patch]:
    made = {name: _checking(getattr(c10d, name)) for name in (*_REDUCED, *_CHECKED) if hasattr(c10d, name)}
    return [
        Patch(owner, name, function, "NCCL refuses what gloo takes, and reduces what gloo does not")
        for name, function in made.items()
        for owner in (c10d, dist)
    ]


def _checking(original: Callable[..., Any]) -> Callable[..., Any]:
    import inspect

    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        given = bound.arguments
        pg = given.get("group") or (dist.group.WORLD if dist.is_initialized() else None)
        if getattr(pg, "group_name", None) not in nccl_groups:
            return original(*args, **kwargs)
        for name, value in given.items():
            if name != "group":
                _check(value)
        operation = given.get("op")
        if operation is None:
            return original(*args, **kwargs)
        return _reduce(original, bound, operation, dist.get_world_size(pg))

    return call


def _check(value: Any) -> None:
    """Refuse tensors that NCCL refuses, in its words (ProcessGroupNCCL.cpp, ProcessGroup.hpp)."""
    for tensor in flat_tensors(value):
        if tensor.device.type == "cpu":
            raise RuntimeError("No backend type associated with device type cpu")
        if tensor.layout is torch.strided and not tensor.is_contiguous():
            is_last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
            if not is_last:
                raise ValueError("Tensors must be contiguous")


def _reduce(original: Callable[..., Any], bound: Any, operation: Any, size: int) -> Any:
    """Reduce as NCCL does where gloo cannot: a product beforehand, means of whole numbers."""
    kind = getattr(operation, "op", operation)
    if kind in _BITWISE:
        raise ValueError(f"Cannot use {kind} with NCCL")
    given = bound.arguments
    into = next(name for name in ("tensor", "output") if name in given)
    source = next((name for name in ("input", "input_list") if name in given), into)
    if kind == dist.ReduceOp.PREMUL_SUM:
        given["op"] = dist.ReduceOp.SUM
        scaled = [tensor.mul(operation.factor) for tensor in flat_tensors(given[source])]
        if source == into:
            given[into].copy_(scaled[0])
        else:
            given[source] = scaled if isinstance(given[source], list) else scaled[0]
    elif kind == dist.ReduceOp.AVG and not given[into].is_floating_point() and not given[into].is_complex():
        given["op"] = dist.ReduceOp.SUM
        work = original(*bound.args, **bound.kwargs)
        if work is not None:
            work.wait()
        given[into].copy_(given[into].div(size, rounding_mode="trunc"))
        return work
    return original(*bound.args, **bound.kwargs)

"""Process groups of the backend "nccl": gloo's under NCCL's name, for tensors that C++ sees on the CPU."""

from __future__ import annotations

import copy
import functools
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from dpdemo.virtual.applying import Patch, always, group, of_session, stands_in, wraps
from dpdemo.virtual.errors import UnsupportedOpError
from dpdemo.virtual.ops import point_to_point
from dpdemo.virtual.ops.collectives import coalesced, gpu_of_group, mixed_groups, nccl_groups, second_groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpdemo.virtual.state import Session

_c10d: Any = dist.distributed_c10d
_cpp: Any = torch._C._distributed_c10d
_Group: Any = _cpp.ProcessGroup
TIMEOUT = timedelta(minutes=10)
HAS_SECOND = hasattr(_c10d, "_create_nccl2_process_group")
"""Whether PyTorch has another implementation: 2.14 by name alone, from 2.15 on "nccl" is it."""
before_first_group: list[Callable[[Any], None]] = []
"""Each is called with the store of a default group before its ranks connect."""
_num_splits: dict[str, int] = {}
"""By name of a group, how often groups were split off it."""


def attempt() -> str:
    """Return how often torchrun has restarted the ranks."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")


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
        self._timeout = TIMEOUT
        self.global_ranks_in_group: list[int] = []
        self.group_name, self.backend = "", "nccl"
        self.split_from: Any = None
        self.split_color = 0
        self.lazy_init = self.enable_reconfigure = self.use_pg_for_symm_mem_rendezvous = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Options:
        """Share the group that it was split off: C++'s objects cannot be copied."""
        new = copy.copy(self)
        new.config = _Config(self.config)
        return new


class OverGloo(_cpp.ProcessGroupGloo):  # type: ignore[misc]
    """NCCL by name, gloo in fact."""

    supports_splitting = supports_coalescing = True
    bound_device_id = None

    def __init__(self, store: Any, rank: int, size: int, options: Options | None = None) -> None:
        self.nccl_options = options or Options()
        # A store outlives groups and, under torchrun, ranks: it has the addresses of those that are gone
        kept = _cpp.PrefixStore(f"attempt {attempt()}/", store)
        turn = kept.add(f"turn of rank {rank}", 1)  # all members make a group equally often
        super().__init__(_cpp.PrefixStore(f"{turn}/", kept), rank, size, timeout=self.nccl_options._timeout)

    def register_mem_pool(self, *_: Any, **__: Any) -> Any:
        """Refuse NCCL's memory pools."""
        return refuse("NCCL's memory pools")

    def new_window(self, *_: Any, **__: Any) -> Any:
        """Refuse windows into another rank's memory."""
        return refuse("windows of NCCL")

    def _beside(self, store: Any, rank: int, size: int, options: Options | None) -> Any:
        """Return a backend of the same kind for a group that is split off."""
        return type(self)(store, rank, size, options)

    options = property(lambda self: self.nccl_options)
    mem_allocator = property(register_mem_pool)
    name, get_error = always("nccl"), always(None)
    abort, _get_timeout = (lambda self: self.shutdown()), (lambda self: self.nccl_options._timeout)
    # gloo is connected already, and a rank takes no part in a split that leaves it out
    eager_connect_single_device = perform_nocolor_split = always(None)
    _add_ephemeral_timeout = always(None)


class ProcessGroupNCCL(OverGloo):
    """NCCL as PyTorch has it from the start; "nccl-legacy" from torch 2.14 on."""

    NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_EFFICIENCY, NCCL_CTA_POLICY_ZERO = 0, 1, 2
    uid = 0
    comm_split_count = always(0)
    _group_start = _group_end = always(None)
    _is_initialized = _verify_work_timeout = always(True)


class SecondNCCL(OverGloo):
    """The implementations that torch 2.14 adds: from 2.15 on they are bound to a GPU from the start."""

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        options: Options | None = None,
        device: torch.device | None = None,
    ) -> None:
        super().__init__(store, rank, size, options)
        self.device = device

    def _beside(self, store: Any, rank: int, size: int, options: Options | None) -> Any:
        return type(self)(store, rank, size, options, self.device)

    def split(self, store: Any, ranks: list[int], options: Options | None = None) -> Any:
        """Return the backend of some ranks, in their order; None for a rank that is not among them."""
        if self.rank() not in ranks:
            return None
        return self._beside(store, ranks.index(self.rank()), len(ranks), options)

    name = always("nccl2")


class ProcessGroupNCCL2(SecondNCCL):
    """What "nccl" is from torch 2.15 on."""


class ProcessGroupNCCLLazy(SecondNCCL):
    """The same with a connection of its own for each pair of ranks."""

    name, _num_active_channels = always("nccl-lazy"), always(1)


ProcessGroupNCCL.Options = Options
for _kind in (ProcessGroupNCCL, ProcessGroupNCCL2, ProcessGroupNCCLLazy):
    _kind.__module__ = "torch.distributed.distributed_c10d"


def refuse(what: str) -> Any:
    """Raise the error of what reaches into another process."""
    raise UnsupportedOpError(f"{what}: each rank's virtual GPUs are memory of its own process")


@of_session
def _registering(_: Session) -> list[Patch]:
    """Register NCCL also for tensors that C++ sees on the CPU, without showing it."""
    register, device_types = _Group._register_backend, _Group._device_types
    kept: list[Any] = []
    only_gpu: set[int] = set()
    mixed: set[int] = set()
    second: set[int] = set()

    def _register_backend(self: Any, device: torch.device, kind: Any, backend: Any = None) -> None:
        kept.append(backend)  # pybind11 would forget that it is a ProcessGroupNCCL
        register(self, device, kind, backend)
        if isinstance(backend, OverGloo):
            mixed.add(id(self))
        if isinstance(backend, SecondNCCL):
            second.add(id(self))
        if device.type == "cuda" and not any(each.type == "cpu" for each in device_types.__get__(self)):
            register(self, torch.device("cpu"), kind, backend)
            only_gpu.add(id(self))
            kept.append(self)
        elif device.type == "cpu":
            only_gpu.discard(id(self))

    def _device_types(self: Any) -> list[torch.device]:
        found = device_types.__get__(self)
        return [device for device in found if device.type != "cpu"] if id(self) in only_gpu else list(found)

    set_name = _Group._set_group_name

    def _set_group_name(self: Any, name: str) -> None:
        set_name(self, name)
        gpu_of_group.pop(name, None)
        point_to_point.forget(name)
        kinds = (nccl_groups, only_gpu), (mixed_groups, mixed - only_gpu), (second_groups, second)
        for names, known in kinds:
            (names.add if id(self) in known else names.discard)(name)

    return group(
        _Group,
        "C++ sees tensors of the CPU",
        _register_backend=_register_backend,
        _device_types=property(_device_types),
        _set_group_name=_set_group_name,
    )


@stands_in(_Group, why="gloo does not coalesce")
def _start_coalescing(self: Any, device: Any) -> None:  # noqa: ARG001 - PyTorch's own
    coalesced[self.group_name] = []


class _CoalescedWork(_cpp.Work):  # type: ignore[misc]
    """The end of a coalescing manager, whose collectives ran one by one."""

    def __init__(self, works: list[Any]) -> None:
        super().__init__()
        self.works = works

    def wait(self, timeout: Any = None) -> bool:  # noqa: ARG002 - PyTorch's own
        """Wait for all of them."""
        for work in self.works:
            work.wait()
        return True

    is_completed = always(True)


@stands_in(_Group, why="gloo does not coalesce")
def _end_coalescing(self: Any, device: Any) -> Any:  # noqa: ARG001 - PyTorch's own
    works = coalesced.pop(self.group_name, [])
    return _CoalescedWork(
        [_cpp.Work.unbox(work) if isinstance(work, torch.ScriptObject) else work for work in works]
    )


@wraps(_c10d, "_new_process_group_helper", why="gloo's ranks do not wait until all are connected")
def _waiting_for_all(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def new_process_group(*args: Any, **kwargs: Any) -> Any:
        if not dist.is_initialized():
            store = next((each for each in args if isinstance(each, _cpp.Store)), None)
            for observe in before_first_group:
                observe(store)
        made, store = make(*args, **kwargs)
        if store is not None:  # this rank is a member
            _wait_for_all(made)
        return made, store

    return new_process_group


def _wait_for_all(made: Any) -> None:
    """Wait until all ranks of a new group are connected, as NCCL's ranks are after their first collective.

    gloo connects pair by pair. A rank whose pairs are all connected could end, and with it the store that it
    hosts, while others still connect to each other: they would fail.
    """
    backends: list[Any] = [made._get_backend(device) for device in made._device_types]
    gloo: list[Any] = [each for each in backends if isinstance(each, dist.ProcessGroupGloo)]
    if gloo and made.size() > 1:
        gloo[-1].barrier().wait()


@stands_in(_Group, "split_group", why="gloo's C++ cannot split off a group that has NCCL's name")
def _split_group(  # noqa: PLR0913, PLR0917 - PyTorch's own
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
    store = _cpp.PrefixStore(f"split {number} {ranks}/", self.get_group_store())
    made = _Group(store, rank, size)
    for device in device_types or self._device_types:
        below = _cpp.PrefixStore(f"{device}/", store)
        whole = self._get_backend(device)
        if isinstance(whole, OverGloo):
            backend, kind = whole._beside(below, rank, size, opts), _Group.BackendType.NCCL
        else:
            backend = _cpp.ProcessGroupGloo(below, rank, size, timeout=timeout or TIMEOUT)
            kind = _Group.BackendType.GLOO
        if not HAS_SECOND:  # from torch 2.15 on it warns, and does nothing
            backend._set_sequence_number_for_group()
        made._set_default_backend(kind)
        made._register_backend(device, kind, backend)
    made._set_group_name(group_name)
    made._set_group_desc(group_desc or "")
    _wait_for_all(made)
    return made

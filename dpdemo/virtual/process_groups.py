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
from dpdemo.virtual.ops.collectives import coalesced, gpu_of_group, mixed_groups, nccl_groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpdemo.virtual.state import Session

_c10d: Any = dist.distributed_c10d
_cpp: Any = torch._C._distributed_c10d
_Group: Any = _cpp.ProcessGroup
TIMEOUT = timedelta(minutes=10)
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

    def __deepcopy__(self, memo: dict[int, Any]) -> Options:
        """Share the group that it was split off: C++'s objects cannot be copied."""
        new = copy.copy(self)
        new.config = _Config(self.config)
        return new


class ProcessGroupNCCL(_cpp.ProcessGroupGloo):  # type: ignore[misc]
    """NCCL by name, gloo in fact."""

    NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_EFFICIENCY, NCCL_CTA_POLICY_ZERO = 0, 1, 2
    supports_splitting = True
    bound_device_id = None
    uid = 0

    def __init__(self, store: Any, rank: int, size: int, options: Options | None = None) -> None:
        self.nccl_options = options or Options()
        # torchrun keeps its store when it restarts ranks, with the addresses of those that are gone
        prefixed = _cpp.PrefixStore(f"attempt {attempt()}/", store)
        super().__init__(prefixed, rank, size, timeout=self.nccl_options._timeout)

    def register_mem_pool(self, *_: Any, **__: Any) -> Any:
        """Refuse NCCL's memory pools."""
        return refuse("NCCL's memory pools")

    options = property(lambda self: self.nccl_options)
    mem_allocator = property(register_mem_pool)
    name, comm_split_count, get_error = always("nccl"), always(0), always(None)
    abort, _get_timeout = (lambda self: self.shutdown()), (lambda self: self.nccl_options._timeout)
    # gloo is connected already, and a rank takes no part in a split that leaves it out
    eager_connect_single_device = perform_nocolor_split = always(None)
    _group_start = _group_end = _add_ephemeral_timeout = always(None)
    _is_initialized = _verify_work_timeout = always(True)


ProcessGroupNCCL.Options = Options
ProcessGroupNCCL.__module__ = "torch.distributed.distributed_c10d"


def refuse(what: str) -> Any:
    """Raise the error of what reaches into another process."""
    raise UnsupportedOpError(f"{what}: each rank's virtual GPUs are memory of its own process")


@of_session
def _registering(_: Session) -> list[Patch]:
    """Register NCCL also for tensors that C++ sees on the CPU, without showing it."""
    register, kinds = _Group._register_backend, _Group._device_types
    kept: list[Any] = []
    only_gpu: set[int] = set()
    mixed: set[int] = set()

    def _register_backend(self: Any, device: torch.device, kind: Any, backend: Any = None) -> None:
        kept.append(backend)  # pybind11 would forget that it is a ProcessGroupNCCL
        register(self, device, kind, backend)
        if isinstance(backend, ProcessGroupNCCL):
            mixed.add(id(self))
        if device.type == "cuda" and not any(each.type == "cpu" for each in kinds.__get__(self)):
            register(self, torch.device("cpu"), kind, backend)
            only_gpu.add(id(self))
            kept.append(self)
        elif device.type == "cpu":
            only_gpu.discard(id(self))

    def _device_types(self: Any) -> list[torch.device]:
        found = kinds.__get__(self)
        return [device for device in found if device.type != "cpu"] if id(self) in only_gpu else list(found)

    set_name = _Group._set_group_name

    def _set_group_name(self: Any, name: str) -> None:
        set_name(self, name)
        gpu_of_group.pop(name, None)
        for names, known in ((nccl_groups, only_gpu), (mixed_groups, mixed - only_gpu)):
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


class _Done(_cpp.Work):  # type: ignore[misc]
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
    return _Done([_cpp.Work.unbox(work) if isinstance(work, torch.ScriptObject) else work for work in works])


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
        if isinstance(self._get_backend(device), ProcessGroupNCCL):
            backend, kind = ProcessGroupNCCL(below, rank, size, opts), _Group.BackendType.NCCL
        else:
            backend = _cpp.ProcessGroupGloo(below, rank, size, timeout=timeout or TIMEOUT)
            kind = _Group.BackendType.GLOO
        backend._set_sequence_number_for_group()
        made._set_default_backend(kind)
        made._register_backend(device, kind, backend)
    made._set_group_name(group_name)
    made._set_group_desc(group_desc or "")
    _wait_for_all(made)
    return made

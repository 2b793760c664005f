"""The CUDA runtime's devices: which GPUs there are, which one is current, and their properties.

CUDA's driver reads `CUDA_VISIBLE_DEVICES` once, at its first use; `torch.cuda.device_count` reads it each
time until PyTorch has initialised CUDA. Both use PyTorch's own functions for it here. Each block has its
variable, which is unset at first: the value from outside is about real GPUs.

A process that was forked before the driver started may use CUDA and starts its own driver; a process that was
forked later cannot (`poison_fork`, torch/csrc/cuda/Module.cpp). `torch.cuda.is_available()` starts the
driver, and `device_count()` does not.
"""

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, TypeVar

import torch

from dpdemo.arithmetic.cards import Card
from dpdemo.virtual.applying import Patch, group, of_session, stands_in
from dpdemo.virtual.state import Session, the_session

_Function = TypeVar("_Function")
VARIABLE = "CUDA_VISIBLE_DEVICES"
_BOUND = "bound when torch.cuda was imported, or set by CUDA's own initialisation"
# Shared memory of a multiprocessor in KiB, by compute capability (CUDA programming guide)
_SHARED_KIB = {(6, 0): 64, (7, 0): 96, (7, 5): 64, (8, 0): 164, (8, 6): 100, (8, 9): 100, (12, 0): 100}
_SHARED_KIB_SINCE_HOPPER = 228
_starting = threading.Lock()


def cuda_runtime(*names: str) -> Callable[[_Function], _Function]:
    """Register a function as the replacement of functions of `torch._C`, which a CPU build lacks."""
    return stands_in(
        torch._C, *names, why="the CUDA runtime's functions behind torch.cuda, torch.accelerator"
    )


def start_driver() -> Session:
    """Read the program's choice of GPUs, once and for all, and return the block's session."""
    session = the_session()
    if session.started_in is not None:
        return session
    with _starting:
        if session.started_in is None:
            session.read_visible = os.environ.get(VARIABLE)
            session.see_only(_chosen(session.num_gpus))
            session.started_in = os.getpid()
    return session


def _chosen(num_gpus: int) -> list[int]:
    """Return the GPUs that the variable names, up to the first that does not exist."""
    if VARIABLE not in os.environ:
        return list(range(num_gpus))  # torch's own reader ends at 64 of them
    named: Any = torch.cuda._parse_visible_devices()
    return list(itertools.takewhile(range(num_gpus).__contains__, named))  # a UUID is none of them


@contextlib.contextmanager
def visible_variable(session: Session) -> Iterator[None]:
    """Set the block's variable, and restore the value from outside afterwards.

    Other processes are started with the value from outside: it may hide real GPUs from them.
    """
    outside = os.environ.pop(VARIABLE, None)
    if outside is not None:
        os.putenv(VARIABLE, outside)
    if session.set_visible is not None:
        os.environ[VARIABLE] = session.set_visible
    try:
        yield
    finally:
        session.set_visible = os.environ.pop(VARIABLE, None)
        if outside is not None:
            os.environ[VARIABLE] = outside


@of_session
def _initialisation(session: Session) -> list[Patch]:
    return group(
        torch.cuda,
        _BOUND,
        _initialized=session.is_initialised,
        _cached_device_count=None,
        _queued_calls=[],  # calls that were queued before the block are about real GPUs
        _lazy_seed_tracker=type(torch.cuda._lazy_seed_tracker)(),
        default_generators=tuple(session.generators) if session.is_initialised else (),
    )


@cuda_runtime("_cuda_init")
def _initialise() -> None:
    session = start_driver()
    if not session.num_gpus:
        raise RuntimeError("No CUDA GPUs are available")
    torch.cuda.default_generators = tuple(session.generators)  # type: ignore[assignment]
    session.is_initialised = True


@cuda_runtime("_cuda_getDeviceCount")
def _device_count() -> int:
    return start_driver().num_gpus


@stands_in(torch.cuda, "_device_count_nvml", why=_BOUND)
def _count_without_driver() -> int:
    """Return the number of visible GPUs without starting the driver, as NVIDIA's management library can."""
    return len(_chosen(len(the_session().all_devices)))


@stands_in(torch.cuda, "_is_in_bad_fork", why=_BOUND)
@cuda_runtime("_cuda_isInBadFork")
def _is_in_bad_fork() -> bool:
    return the_session().is_in_bad_fork()


@cuda_runtime("_accelerator_isAllocatorInitialized")
def _is_initialised() -> bool:
    return the_session().is_initialised


@cuda_runtime("_cuda_getDevice", "_accelerator_getDeviceIndex")
def _get_device() -> int:
    return the_session().current.index


@cuda_runtime("_cuda_setDevice", "_accelerator_setDeviceIndex")
def _set_device(index: int) -> None:
    if index >= 0:
        session = start_driver()
        session.current.index = session.check_ordinal(index)


@stands_in(torch.cuda, "_exchange_device", "_maybe_exchange_device", why=_BOUND)
@cuda_runtime("_cuda_exchangeDevice", "_cuda_maybeExchangeDevice")
@cuda_runtime("_accelerator_exchangeDevice", "_accelerator_maybeExchangeDevice")
def _exchange_device(index: int) -> int:
    """Make GPU `index` the current one and return the one before; -1 for a negative index."""
    if index < 0:
        return -1
    before = _get_device()
    _set_device(index)
    return before


@cuda_runtime("_cuda_canDeviceAccessPeer")
def _can_access_peer(device: int, peer: int) -> bool:
    return the_session().check_ordinal(device) != the_session().check_ordinal(peer)


@cuda_runtime("_accelerator_getAccelerator", "_get_accelerator")
def _accelerator(check: bool | None = None) -> torch.device:  # noqa: ARG001 - PyTorch's own
    return torch.device("cuda")


@cuda_runtime("_accelerator_getDefaultGenerator")  # torch 2.15
def _default_generator(index: int) -> torch.Generator:
    torch.cuda._lazy_init()  # type: ignore[no-untyped-call] # with it go the seeds that were set before
    session = the_session()
    return session.generators[session.check_ordinal(index)]


@cuda_runtime("_accelerator_getDeviceCapability")
def _accelerator_capability(index: int) -> dict[str, Any]:
    the_session().check_ordinal(index)
    return {"supported_dtypes": {value for value in vars(torch).values() if isinstance(value, torch.dtype)}}


@stands_in(torch._C, "_CudaDeviceProperties", why="only a build for CUDA has it")
class _CudaDeviceProperties(SimpleNamespace):
    """A GPU's properties, those of its card (dpdemo/arithmetic/cards.py); none describes its speed."""


@stands_in(torch.cuda, "_get_device_properties", why=_BOUND)
def _properties(index: int) -> _CudaDeviceProperties:
    session = the_session()
    card: Card = session.card
    shared = 1024 * _SHARED_KIB.get(card.capability, _SHARED_KIB_SINCE_HOPPER)
    physical = session.visible[session.check_ordinal(index)]
    return _CudaDeviceProperties(
        name=card.reported_name,
        gcnArchName=card.reported_name,
        major=card.capability[0],
        minor=card.capability[1],
        total_memory=session.total_bytes(index),
        multi_processor_count=card.num_multiprocessors,
        max_threads_per_multi_processor=card.threads_per_multiprocessor,
        max_threads_per_block=1024,
        warp_size=32,
        regs_per_multiprocessor=65536,
        L2_cache_size=card.cache_bytes,
        shared_memory_per_block=49152,
        shared_memory_per_multiprocessor=shared,
        shared_memory_per_block_optin=shared - 1024,  # the system reserves 1 KiB of it
        uuid=f"00000000-0000-0000-0000-{physical:012d}",
        pci_bus_id=physical,
        **dict.fromkeys(("pci_device_id", "pci_domain_id", "is_integrated", "is_multi_gpu_board"), 0),
    )

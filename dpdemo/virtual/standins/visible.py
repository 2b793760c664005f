"""CUDA's first moments: when it starts, and what `CUDA_VISIBLE_DEVICES` says by then.

CUDA's driver reads the variable once, when it is first asked for anything; `torch.cuda.device_count` reads it
anew each time until PyTorch has initialised CUDA. Both read it here with PyTorch's own functions. A block has
a variable of its own, which the program finds unset: what stood there before is about real GPUs.

A process that was forked before the driver started may use CUDA and starts its own; one that was forked
later cannot (`poison_fork`, torch/csrc/cuda/Module.cpp). `torch.cuda.is_available()` starts the driver, and
`device_count()` does not.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any

import torch

from dpdemo.virtual.standins.properties import uuid_of
from dpdemo.virtual.state import the_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpdemo.virtual.state import Session

VARIABLE = "CUDA_VISIBLE_DEVICES"
_starting = threading.Lock()


def start_driver() -> Session:
    """Let the program's choice of GPUs count, once and for all, and return the block's session."""
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
    """Return the GPUs that the variable names, up to the first that is not there."""
    named: Any = torch.cuda._parse_visible_devices()
    if named and isinstance(named[0], str):
        named = torch.cuda._transform_uuid_to_ordinals(named, raw_uuids())
    missing = (place for place, index in enumerate(named) if index >= num_gpus)
    return list(named[: next(missing, len(named))])


def device_count() -> int:
    """Return the number of virtual GPUs that the program sees."""
    return start_driver().num_gpus


def initialise() -> None:
    """Do what PyTorch's own initialisation of CUDA asks for.

    Raises:
        RuntimeError: the program hid all GPUs.

    """
    session = start_driver()
    if not session.num_gpus:
        raise RuntimeError("No CUDA GPUs are available")
    torch.cuda.default_generators = tuple(session.generators)  # type: ignore[assignment]
    session.is_initialised = True


def raw_count() -> int:
    """Return how many GPUs there are, hidden ones too, as NVIDIA's management library says."""
    session = the_session()
    return len(session.all_devices)


def raw_uuids() -> list[str]:
    """Return what `nvidia-smi -L` calls each of them."""
    return [f"GPU-{uuid_of(index)}" for index in range(raw_count())]


@contextlib.contextmanager
def own_variable(session: Session) -> Iterator[None]:
    """Give the block a variable of its own, and put the one from outside back.

    Other processes are started with the one from outside: it may hide real GPUs from them.
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

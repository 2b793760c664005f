"""`virtual_gpus(n)`: open a block in which this process has n CUDA devices, and close it without a trace."""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import TYPE_CHECKING, Literal

import torch

from dpdemo.bytesize import capacities
from dpdemo.virtual import numberless, patches, state
from dpdemo.virtual.casting import Autocast
from dpdemo.virtual.dispatch import VirtualGpuMode
from dpdemo.virtual.errors import VirtualGpuError
from dpdemo.virtual.generators import on_gpu
from dpdemo.virtual.kinds import optimizers_watched
from dpdemo.virtual.lazy_init import forget_initialisation
from dpdemo.virtual.ledger import KIND_NAMES, BytesMoved, Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_opening = threading.Lock()
_numbers = itertools.count(1)


class VirtualGpus:
    """What `with virtual_gpus(n) as gpus` hands over: how many there are, what they hold, what was moved."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __len__(self) -> int:
        return self._ledger.num_gpus

    @property
    def bytes_moved(self) -> BytesMoved:
        """Bytes copied so far between the host and the GPUs, and between GPUs."""
        return self._ledger.moved

    @property
    def bytes_moved_between(self) -> dict[tuple[int | None, int | None], int]:
        """Bytes copied so far for each pair (source, target) of GPUs; None is the host."""
        return dict(self._ledger.moved_between)

    def live_bytes(self, index: int) -> int:
        """Return the bytes that GPU `index` holds now."""
        return self._ledger.live[index]

    def peak_bytes(self, index: int) -> int:
        """Return the most bytes that GPU `index` held at a time since its last reset."""
        return self._ledger.peak[index]

    def live_by_kind(self, index: int) -> dict[str, int]:
        """Return the bytes that GPU `index` holds now, by what they are for."""
        return dict(zip(KIND_NAMES, self._ledger.held_by_kind(index), strict=True))

    def peak_by_kind(self, index: int) -> dict[str, int]:
        """Return what the peak of GPU `index` was made of; a storage counts as what it turned out to be."""
        return dict(zip(KIND_NAMES, self._ledger.peak_by_kind(index), strict=True))

    def peak_phase(self, index: int) -> str:
        """Return the phase (see `phase`) in which GPU `index` came to its peak; "" if none was set."""
        return self._ledger.gpus[index].peak_phase

    @property
    def phase(self) -> str:
        """What the program is at, in words of your own: the ledger notes it beside each peak."""
        return self._ledger.phase

    @phase.setter
    def phase(self, phase: str) -> None:
        self._ledger.phase = phase

    def reset_peaks(self) -> None:
        """Let all peaks start again from what is live now."""
        for index in range(len(self)):
            self._ledger.reset_peak(index)


def is_active() -> bool:
    """Tell whether a block of virtual GPUs is open in this process."""
    return state.session is not None


@contextlib.contextmanager
def virtual_gpus(
    num_gpus: int,
    *,
    memory: str | int | Sequence[str | int] | None = None,
    storage: Literal["cpu", "meta"] = "cpu",
) -> Iterator[VirtualGpus]:
    """Give this process `num_gpus` CUDA devices for the length of a `with` block.

    Inside it `torch.cuda.device_count()` is `num_gpus`, `x.to("cuda:1")` works, and PyTorch's own
    DataParallel runs over the devices with real numbers and gradients. Leaving the block, also by an
    exception, puts every attribute of PyTorch that was replaced back. Tensors that outlive the block are CPU
    tensors from then on.

    The devices are the process's: every thread that starts inside the block sees them. A thread that was
    running before does not.

    Args:
        num_gpus: how many devices.
        memory: the capacity of each GPU, as "24GiB" or in bytes, or a list with one for each; past it
            `torch.OutOfMemoryError` is raised. Without it there is no limit, and the GPUs say that they have
            80 GiB.
        storage: where the GPUs' numbers are. With "meta" there are none: shapes, devices and bytes come out
            as with "cpu", and no memory is needed. An operator whose result depends on numbers is an error.
            Parameters have no numbers on the host either, so that moving a module keeps them the same
            objects; build the model inside the block.

    Raises:
        ValueError: `num_gpus` is not a positive number, or `memory` is not a size for each GPU.
        VirtualGpuError: a block is open already, or real GPUs are visible.

    """
    if isinstance(num_gpus, bool) or not isinstance(num_gpus, int) or num_gpus < 1:
        raise ValueError(f"`num_gpus`: expected a number of at least 1, got {num_gpus!r}")
    if storage not in {"cpu", "meta"}:
        raise ValueError(f"`storage`: expected 'cpu' or 'meta', got {storage!r}")
    session = _open(num_gpus, capacities(memory, num_gpus), is_meta=storage == "meta")
    session.current.inside = True
    try:
        if session.is_meta:
            numberless.warm_up()
        with patches.applied(patches.table(session)), optimizers_watched(), VirtualGpuMode(session):
            yield VirtualGpus(session.ledger)
    finally:
        session.autocast.close()
        state.session = None
        forget_initialisation()


@contextlib.contextmanager
def separate_ledger() -> Iterator[VirtualGpus]:
    """Book what is allocated and moved in a `with` block on a ledger of its own, which is handed over.

    Whoever is watched must not notice his watcher: peaks and bytes moved stay as they were. What is freed is
    taken off the ledger that it was put on. The ledger aside has no limits: what is looked into may need more
    than the GPUs have.

    Raises:
        VirtualGpuError: outside any block of virtual GPUs.

    """
    session = state.the_session()
    ledger = session.ledger
    session.ledger = Ledger(session.num_gpus)
    try:
        yield VirtualGpus(session.ledger)
    finally:
        session.ledger = ledger


def _open(num_gpus: int, limits: list[int | None], *, is_meta: bool) -> state.Session:
    """Claim the process's one block."""
    with _opening:
        if state.session is not None:
            raise VirtualGpuError(
                f"a block of {state.session.num_gpus} virtual GPUs is open already; "
                "leave it before opening another"
            )
        if torch.cuda.is_available():
            raise VirtualGpuError(
                f"{torch.cuda.device_count()} real GPUs are visible, and virtual ones would hide them; "
                "set CUDA_VISIBLE_DEVICES to an empty string before torch is imported"
            )
        devices = [torch.device("cuda", index) for index in range(num_gpus)]
        session = state.Session(
            num_gpus=num_gpus,
            key=f"_virtual_gpu_{next(_numbers)}",
            ledger=Ledger(num_gpus, limits),
            is_meta=is_meta,
            devices=devices,
            generators=[on_gpu(device) for device in devices],
            autocast=Autocast(),
        )
        for generator in session.generators:
            generator.manual_seed(torch.initial_seed())
        state.session = session
        return session

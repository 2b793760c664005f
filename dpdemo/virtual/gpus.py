"""`VirtualGpus`: the figures of a block's GPUs, as `with virtual_gpus(n) as gpus` returns them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dpdemo.virtual import state
from dpdemo.virtual.blocks import KIND_NAMES
from dpdemo.virtual.caching import Recorder
from dpdemo.virtual.patches.cuda_devices import VARIABLE, start_driver

if TYPE_CHECKING:
    from dpdemo.virtual.accounts import Accounts, Event
    from dpdemo.virtual.ledger import BytesMoved, Ledger


class VirtualGpus:
    """The GPUs of a block, as `with virtual_gpus(n) as gpus` returns them: bytes held, bytes moved."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __len__(self) -> int:
        return self._ledger.num_gpus

    @property
    def visible(self) -> tuple[int, ...]:
        """The GPUs that the program sees by its CUDA_VISIBLE_DEVICES, in its own order.

        That is read once: when the program first uses or asks for GPUs, or here.
        """
        return tuple(start_driver().visible)

    @property
    def is_started(self) -> bool:
        """Whether the program has used CUDA; asking `torch.cuda.device_count()` alone does not."""
        return state.the_session().started_in is not None

    @property
    def set_visible(self) -> tuple[str | None, str | None]:
        """The program's CUDA_VISIBLE_DEVICES now, and its value when CUDA read it; None if unset."""
        return os.environ.get(VARIABLE), start_driver().read_visible

    @property
    def bytes_moved(self) -> BytesMoved:
        """Bytes copied so far between the host and the GPUs, and between GPUs."""
        return self._ledger.moved

    @property
    def bytes_moved_between(self) -> dict[tuple[int | None, int | None], int]:
        """Bytes copied so far for each pair (source, target) of GPUs; None is the host."""
        sums: dict[tuple[int | None, int | None], int] = {}
        for (_, source, target), nbytes in self._ledger.moved_in.items():
            sums[source, target] = sums.get((source, target), 0) + nbytes
        return sums

    @property
    def bytes_moved_in(self) -> dict[tuple[str, int | None, int | None], int]:
        """Bytes copied so far for each (phase, source, target); see `phase`."""
        return dict(self._ledger.moved_in)

    def live_bytes(self, index: int) -> int:
        """Return the bytes that GPU `index` holds now."""
        return self._ledger.live[index]

    def peak_bytes(self, index: int) -> int:
        """Return the most bytes that GPU `index` held at a time since its last reset."""
        return self._ledger.peak[index]

    def live_by_kind(self, index: int) -> dict[str, int]:
        """Return the bytes that GPU `index` holds now, by what they are for."""
        return dict(zip(KIND_NAMES, self._accounts.gpus[index].held, strict=True))

    def peak_by_kind(self, index: int) -> dict[str, int]:
        """Return what the peak of GPU `index` was made of; a storage counts as what it turned out to be."""
        return dict(zip(KIND_NAMES, self._accounts.peak_by_kind(index), strict=True))

    def most_by_kind(self, index: int) -> dict[str, int]:
        """Return the most bytes of each kind that GPU `index` held at a time since its last reset."""
        return dict(zip(KIND_NAMES, self._accounts.gpus[index].most, strict=True))

    def peak_phase(self, index: int) -> str:
        """Return the phase (see `phase`) in which GPU `index` came to its peak; "" if none was set."""
        return self._accounts.gpus[index].peak_phase

    def count_scratch(self, capability: int) -> None:
        """Count from now on what cuDNN's convolutions take while they run, on cards of a major capability."""
        state.the_session().scratch_capability = capability

    @property
    def recorder(self) -> Recorder:
        """The recorder of each GPU's caching allocator, which starts when this is first read."""
        if self._accounts.recorder is None:
            self._accounts.recorder = Recorder(len(self))
        return self._accounts.recorder

    @property
    def made_up(self) -> dict[str, bool | float]:
        """The answers that were made up for checks and optimizers, which read numbers, by file and line."""
        return dict(state.the_session().made_up)

    def log(self) -> list[Event]:
        """Return the list of all allocations as they are made, change and end, from those that live on."""
        return self._accounts.start_log()

    @property
    def _accounts(self) -> Accounts:
        """The bytes by purpose, tracked from the first of these questions on."""
        return self._ledger.open_accounts()

    @property
    def phase(self) -> str:
        """Your name for the program's current phase; the ledger notes it beside each peak."""
        return self._ledger.phase

    @phase.setter
    def phase(self, phase: str) -> None:
        self._ledger.phase = phase

    def reset_peaks(self) -> None:
        """Restart all peaks from the bytes that are live now."""
        for index in range(len(self)):
            self._ledger.reset_peak(index)

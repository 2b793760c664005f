"""Bytes of each GPU by purpose and by block, tracked from the first question on.

Note [What the peak was made of]
What a storage is for comes to light after it was made: a result is an activation once `backward` begins and
it is still there, a gradient once it is accumulated. So its kind may change as long as it lives, and the
composition of the peak must be worked out in retrospect. Three sums per GPU do that without a log. `held` is
what lives now; `young` the part of it that was born after the peak; `gone` what lived at the peak and has
died since. At the peak there was held - young + gone. The last two start again from zero at every new peak.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from dpdemo.virtual.blocks import SMALL_BYTES, Kind
from dpdemo.virtual.caching import Recorder

if TYPE_CHECKING:
    Allocation: TypeAlias = Any  # those of ledger.py, which imports this file
    Ledger: TypeAlias = Any

_TEMPORARY = Kind.TEMPORARY
ALLOCATED, FREED, CHANGED, KEPT = range(4)
Event: TypeAlias = tuple[Any, ...]
"""What a log has of each: (ALLOCATED, birth, GPU, requested bytes, kind, phase, stream), (FREED, birth),
(CHANGED, birth, kind), and (KEPT,) where a backward pass begins."""


def _none() -> list[int]:
    return [0] * len(Kind)


@dataclass
class Statistic:
    """One figure of `torch.cuda.memory_stats`, as the allocator follows it (`Stat`, c10/core/Allocator.h)."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def change(self, amount: int) -> None:
        """Add what was taken, or was given back if it is negative."""
        self.current += amount
        if amount > 0:
            self.allocated += amount
            self.peak = max(self.peak, self.current)
        else:
            self.freed -= amount


class Pool:
    """The blocks in use, and their bytes, of one of the allocator's two pools or of both together."""

    def __init__(self) -> None:
        self.blocks, self.bytes = Statistic(), Statistic()


@dataclass
class _Gpu:
    """The sums of one GPU, by kind; see Note [What the peak was made of]."""

    held: list[int] = field(default_factory=_none)
    young: list[int] = field(default_factory=_none)
    gone: list[int] = field(default_factory=_none)
    most: list[int] = field(default_factory=_none)  # of each kind, at any moment since the last reset
    peak_at: int = 0  # the birth of the storage that made the peak
    peak_phase: str = ""
    pools: dict[str, Pool] = field(
        default_factory=lambda: {name: Pool() for name in ("all", "small_pool", "large_pool")}
    )

    def count(self, nbytes: int, sign: int) -> None:
        """Count a block that was taken (1) or given back (-1)."""
        for name in ("all", "large_pool" if nbytes > SMALL_BYTES else "small_pool"):
            self.pools[name].blocks.change(sign)
            self.pools[name].bytes.change(sign * nbytes)


def live_allocations(ledger: Ledger) -> list[Allocation]:
    """List the allocations that are live, for who did not follow them from the start."""
    found = (each for each in gc.get_objects() if type(each).__name__ == "Allocation")
    return [each for each in found if each.ledger is ledger and hasattr(each, "nbytes")]


class Accounts:
    """Follows every allocation of a ledger; those that are live when it begins are taken over."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.gpus = [_Gpu() for _ in range(ledger.num_gpus)]
        self.recorder: Recorder | None = None
        self.log: list[Event] | None = None  # every event from when somebody sets it
        self.num_allocations = 0
        self.kept_until = 0  # temporaries born up to here were still there when a backward pass began
        for live in live_allocations(ledger):
            live.birth = self.allocated(live.index, live.nbytes, live.kind, is_peak=True)
        for index in range(ledger.num_gpus):
            self._set_peak(self.gpus[index])

    def start_log(self) -> list[Event]:
        """Return the log, which starts when this is first called, with what is live."""
        if self.log is None:
            live = live_allocations(self.ledger) if self.num_allocations else []
            live.sort(key=lambda each: each.birth)
            self.log = [
                (ALLOCATED, each.birth, each.index, each.requested, self.kind_of(each), self.ledger.phase, 0)
                for each in live
                if each.nbytes
            ]
        return self.log

    def allocated(self, index: int, nbytes: int, kind: Kind, *, is_peak: bool) -> int:
        """Book an allocation, and return its number."""
        gpu = self.gpus[index]
        self.num_allocations = birth = self.num_allocations + 1
        gpu.held[kind] += nbytes
        gpu.most[kind] = max(gpu.most[kind], gpu.held[kind])
        if nbytes:
            gpu.count(nbytes, 1)
            if self.recorder is not None:
                self.recorder.allocated(index, birth, nbytes, self.ledger.stream_of(index))
        if is_peak:
            self._set_peak(gpu)
        else:
            gpu.young[kind] += nbytes
        return birth

    def freed(self, allocation: Allocation) -> None:
        """Book that an allocation was given back."""
        nbytes, birth, kind = allocation.nbytes, allocation.birth, self.kind_of(allocation)
        if self.log is not None:
            self.log.append((FREED, birth))
        gpu = self.gpus[allocation.index]
        if self.recorder is not None:
            self.recorder.freed(birth)
        gpu.held[kind] -= nbytes
        if birth > gpu.peak_at:
            gpu.young[kind] -= nbytes
        else:
            gpu.gone[kind] += nbytes
        gpu.count(nbytes, -1)

    def _set_peak(self, gpu: _Gpu) -> None:
        gpu.peak_at, gpu.peak_phase = self.num_allocations, self.ledger.phase
        gpu.young, gpu.gone = _none(), _none()

    def kind_of(self, allocation: Allocation) -> Kind:
        """Return what a storage is for, as far as is known."""
        if allocation.kind is _TEMPORARY and allocation.birth <= self.kept_until:
            return Kind.ACTIVATION
        kind: Kind = allocation.kind
        return kind

    def change_kind(self, allocation: Allocation, after: Kind) -> None:
        """Move the bytes of a storage from one kind to another."""
        before = self.kind_of(allocation)
        if self.log is not None:
            self.log.append((CHANGED, allocation.birth, after))
        if before is after:
            return
        gpu = self.gpus[allocation.index]
        for sizes in (gpu.held, gpu.young) if allocation.birth > gpu.peak_at else (gpu.held,):
            sizes[before] -= allocation.nbytes
            sizes[after] += allocation.nbytes
        gpu.most[after] = max(gpu.most[after], gpu.held[after])

    def keep_temporaries(self) -> None:
        """Count every temporary that is still there as an activation: a backward pass begins."""
        self.kept_until = self.num_allocations
        if self.log is not None:
            self.log.append((KEPT,))
        for gpu in self.gpus:
            for sizes in (gpu.held, gpu.young):
                sizes[Kind.ACTIVATION] += sizes[_TEMPORARY]
                sizes[_TEMPORARY] = 0
            gpu.most[Kind.ACTIVATION] = max(gpu.most[Kind.ACTIVATION], gpu.held[Kind.ACTIVATION])

    def peak_by_kind(self, index: int) -> list[int]:
        """Return what the peak of GPU `index` was made of, by kind."""
        gpu = self.gpus[index]
        return [held - young + gone for held, young, gone in zip(gpu.held, gpu.young, gpu.gone, strict=True)]

    def reset_peak(self, index: int) -> None:
        """Let the peak of GPU `index` start again from what is live now."""
        gpu = self.gpus[index]
        self._set_peak(gpu)
        gpu.most = list(gpu.held)
        for pool in gpu.pools.values():
            for statistic in (pool.blocks, pool.bytes):
                statistic.peak = statistic.current

    def reset_totals(self, index: int) -> None:
        """Let what GPU `index` ever took and gave back start again from zero."""
        for pool in self.gpus[index].pools.values():
            for statistic in (pool.blocks, pool.bytes):
                statistic.allocated = statistic.freed = 0

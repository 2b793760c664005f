"""What each virtual GPU holds, of which kind, and what was copied to and from it.

Bytes are counted by storage: views and aliases of one storage count once, and the storage's bytes come back
the moment it dies. Each storage carries its own `Allocation` (see `labels.py`); when the storage goes, Python
drops the allocation and its `__del__` gives the bytes back. There are no weak references, and no registry to
keep in step.

Note [What the peak was made of]
What a storage is for comes to light after it was made: a result is an activation once `backward` begins and
it is still there, a gradient once it is accumulated. So its kind may change as long as it lives, and the
composition of the peak must be worked out in retrospect. Three sums per GPU do that without a log. `held` is
what lives now; `young` the part of it that was born after the peak; `gone` what lived at the peak and has
died since. At the peak there was held - young + gone. The last two start again from zero at every new peak.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from dpdemo.virtual.errors import out_of_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dpdemo.virtual.recorder import Recorder

# The CUDA caching allocator rounds every request up to a multiple of 512 bytes: `kMinBlockSize` in
# c10/cuda/CUDACachingAllocator.cpp (2.13: c10/core/AllocatorConfig.h).
BLOCK_BYTES = 512
SMALL_BYTES = 2**20  # requests of up to so much come from the allocator's pool of small segments


class Kind(IntEnum):
    """What a storage is for; see `kinds.py` for how each comes to light."""

    PARAMETER = 0
    GRADIENT = 1
    OPTIMIZER_STATE = 2
    BUFFER = 3
    INPUT = 4
    ACTIVATION = 5
    REPLICA = 6
    GATHERED = 7
    TEMPORARY = 8
    SCRATCH = 9


_TEMPORARY = Kind.TEMPORARY  # looked up once: it is asked for with each allocation

KIND_NAMES = (
    *("parameters", "gradients", "optimizer state", "buffers", "inputs", "activations"),
    *("replica copies", "gathered outputs", "temporaries", "cuDNN scratch"),
)


def rounded(num_bytes: int) -> int:
    """Round a request up to the caching allocator's block size."""
    return -(-num_bytes // BLOCK_BYTES) * BLOCK_BYTES


class Allocation:
    """One storage's place on a virtual GPU: the label that says where its tensors live.

    Raises:
        torch.OutOfMemoryError: the GPU has a limit, and this would go past it.

    """

    __slots__ = ("birth", "index", "kind", "ledger", "nbytes", "requested")

    def __init__(
        self,
        ledger: Ledger,
        index: int,
        requested: int,
        kind: Kind = Kind.TEMPORARY,
        is_counted: bool = True,
    ) -> None:
        self.ledger = ledger
        self.index = index
        self.nbytes = self.birth = 0  # until the ledger has agreed
        self.kind = kind
        self.requested = requested
        if is_counted:  # as `count` does, at the cost of one call less for each new tensor
            nbytes = -(-requested // BLOCK_BYTES) * BLOCK_BYTES
            self.birth = ledger.allocate(index, nbytes, kind)
            self.nbytes = nbytes

    def count(self) -> None:
        """Take the bytes, if they are not taken yet."""
        if not self.nbytes:
            nbytes = -(-self.requested // BLOCK_BYTES) * BLOCK_BYTES
            self.birth = self.ledger.allocate(self.index, nbytes, self.kind)
            self.nbytes = nbytes

    def resize(self, requested: int) -> None:
        """Follow a storage that changed its size in place (`resize_`, `out=`)."""
        ledger, nbytes = self.ledger, rounded(requested)
        kind = ledger.kind_of(self)
        birth = ledger.allocate(self.index, nbytes, kind)  # the new block first, as when data is kept
        self.free()
        self.kind, self.birth, self.nbytes, self.requested = kind, birth, nbytes, requested

    def mark(self, kind: Kind) -> None:
        """Say what the storage turned out to be for."""
        before = self.ledger.kind_of(self)
        if before is not kind:
            self.ledger.change_kind(self, before, kind)
            self.kind = kind

    def free(self) -> None:
        """Give the bytes back."""
        nbytes = self.nbytes
        if not nbytes:
            return
        ledger, kind, index, birth = self.ledger, self.kind, self.index, self.birth
        if kind is _TEMPORARY and birth <= ledger.kept_until:
            kind = Kind.ACTIVATION
        gpu = ledger.gpus[index]
        ledger.live[index] -= nbytes
        if ledger.recorder is not None:
            ledger.recorder.freed(index, birth, ledger.phase)
        gpu.held[kind] -= nbytes
        if birth > gpu.peak_at:
            gpu.young[kind] -= nbytes
        else:
            gpu.gone[kind] += nbytes
        pool = gpu.pools[nbytes > SMALL_BYTES]
        pool.num -= 1
        pool.num_bytes -= nbytes
        pool.num_freed += 1
        pool.bytes_freed += nbytes

    __del__ = free


@dataclass
class BytesMoved:
    """Bytes copied between the host and the GPUs, and between GPUs, and how many copies of each kind."""

    host_to_device: int = 0
    device_to_device: int = 0
    device_to_host: int = 0
    num_host_to_device: int = 0
    num_device_to_device: int = 0
    num_device_to_host: int = 0


def _none() -> list[int]:
    return [0] * len(Kind)


@dataclass(slots=True)
class Pool:
    """How many blocks of one of the allocator's two pools are taken, and how large they are together.

    `most` and `most_bytes` are since the last reset of the peaks, what was freed since that of the totals;
    `carried` and `carried_bytes` were live at the latter.
    """

    num: int = 0
    num_bytes: int = 0
    most: int = 0
    most_bytes: int = 0
    num_freed: int = 0
    bytes_freed: int = 0
    carried: int = 0
    carried_bytes: int = 0

    def reset_peak(self) -> None:
        """Let the peaks start again from what is live now."""
        self.most, self.most_bytes = self.num, self.num_bytes

    def reset_totals(self) -> None:
        """Let what was taken and freed start again from zero."""
        self.num_freed = self.bytes_freed = 0
        self.carried, self.carried_bytes = self.num, self.num_bytes


@dataclass
class _Gpu:
    """The sums of one GPU, by kind; see Note [What the peak was made of]."""

    held: list[int] = field(default_factory=_none)
    young: list[int] = field(default_factory=_none)
    gone: list[int] = field(default_factory=_none)
    most: list[int] = field(default_factory=_none)  # of each kind, at any moment since the last reset
    peak_at: int = 0  # the birth of the storage that made the peak
    peak_phase: str = ""
    num_ooms: int = 0
    pools: tuple[Pool, Pool] = field(default_factory=lambda: (Pool(), Pool()))  # small blocks, large ones
    most_blocks: int = 0


@dataclass
class Ledger:
    """Live and peak bytes of each GPU by kind, and the bytes moved; one for each `virtual_gpus` block.

    `limits` has the capacity of each GPU, or None where there is none. `phase` is what the program is doing,
    in the words of the code that sets it.
    """

    num_gpus: int
    limits: Sequence[int | None] = ()
    live: list[int] = field(init=False)
    peak: list[int] = field(init=False)
    phase: str = ""
    moved: BytesMoved = field(default_factory=BytesMoved)
    moved_in: dict[tuple[str, int | None, int | None], int] = field(default_factory=dict)
    recorder: Recorder | None = None
    num_allocations: int = 0
    kept_until: int = 0  # temporaries born up to here were still there when a backward pass began
    gpus: list[_Gpu] = field(init=False)
    allowed: list[int | None] = field(init=False)  # the capacity, or the part of it that the program may use
    fractions: dict[int, tuple[float, int]] = field(default_factory=dict)  # which part, and of how much
    observers: list[Callable[[int, int, int, int], None]] = field(
        default_factory=list
    )  # called when it is full

    def __post_init__(self) -> None:
        self.live = [0] * self.num_gpus
        self.peak = [0] * self.num_gpus
        self.gpus = [_Gpu() for _ in range(self.num_gpus)]
        self.limits = list(self.limits) or [None] * self.num_gpus
        self.allowed = list(self.limits)

    def see_only(self, visible: Sequence[int]) -> None:
        """Keep the GPUs `visible`, in this order; nothing was booked yet."""
        self.num_gpus = len(visible)
        self.limits = [self.limits[index] for index in visible]
        if self.recorder is not None:
            self.recorder.see_first(self.num_gpus)
        self.__post_init__()

    def allocate(self, index: int, nbytes: int, kind: Kind) -> int:
        """Take `nbytes` on GPU `index`, and return the number of this allocation."""
        live = self.live[index] + nbytes
        allowed = self.allowed[index]
        gpu = self.gpus[index]
        if allowed is not None and live > allowed:
            gpu.num_ooms += 1
            raise self._out_of_memory(index, nbytes, allowed)
        self.num_allocations = birth = self.num_allocations + 1
        self.live[index] = live
        held, most = gpu.held, gpu.most
        held[kind] = now = held[kind] + nbytes
        if now > most[kind]:  # noqa: PLR1730
            most[kind] = now
        if self.recorder is not None and nbytes:
            self.recorder.allocated(index, birth, nbytes, self.phase)
        if live > self.peak[index]:
            self._set_peak(index, live)
        else:
            gpu.young[kind] += nbytes
        if nbytes:  # PLR1730 would have a call more in each line, at every allocation
            small, large = gpu.pools
            pool = small if nbytes <= SMALL_BYTES else large
            pool.num = num = pool.num + 1
            pool.num_bytes = num_bytes = pool.num_bytes + nbytes
            if num > pool.most:  # noqa: PLR1730
                pool.most = num
            if num_bytes > pool.most_bytes:  # noqa: PLR1730
                pool.most_bytes = num_bytes
            if small.num + large.num > gpu.most_blocks:
                gpu.most_blocks += 1
        return birth

    def _out_of_memory(self, index: int, nbytes: int, allowed: int) -> Exception:
        if self.recorder is not None:
            self.recorder.refused(index, nbytes, self.phase)
        for observe in self.observers:
            observe(index, nbytes, allowed, max(0, allowed - self.live[index]))
        if index not in self.fractions:
            return out_of_memory(index, nbytes, allowed, self.live[index])
        _, total = self.fractions[index]
        return out_of_memory(index, nbytes, total, self.live[index], allowed)

    def _set_peak(self, index: int, live: int) -> None:
        gpu = self.gpus[index]
        self.peak[index] = live
        gpu.peak_at = self.num_allocations
        gpu.peak_phase = self.phase
        gpu.young, gpu.gone = _none(), _none()

    def kind_of(self, allocation: Allocation) -> Kind:
        """Return what a storage is for, as far as is known."""
        if allocation.kind is _TEMPORARY and allocation.birth <= self.kept_until:
            return Kind.ACTIVATION
        return allocation.kind

    def change_kind(self, allocation: Allocation, before: Kind, after: Kind) -> None:
        """Move the bytes of a storage from one kind to another."""
        gpu = self.gpus[allocation.index]
        sums = (gpu.held, gpu.young) if allocation.birth > gpu.peak_at else (gpu.held,)
        for sizes in sums:
            sizes[before] -= allocation.nbytes
            sizes[after] += allocation.nbytes
        gpu.most[after] = max(gpu.most[after], gpu.held[after])

    def keep_temporaries(self) -> None:
        """Count every temporary that is still there as an activation: a backward pass begins."""
        self.kept_until = self.num_allocations
        for gpu in self.gpus:
            for sizes in (gpu.held, gpu.young):
                sizes[Kind.ACTIVATION] += sizes[Kind.TEMPORARY]
                sizes[Kind.TEMPORARY] = 0
            gpu.most[Kind.ACTIVATION] = max(gpu.most[Kind.ACTIVATION], gpu.held[Kind.ACTIVATION])

    def held_by_kind(self, index: int) -> list[int]:
        """Return the live bytes of GPU `index` by kind."""
        return list(self.gpus[index].held)

    def peak_by_kind(self, index: int) -> list[int]:
        """Return what the peak of GPU `index` was made of, by kind."""
        gpu = self.gpus[index]
        return [held - young + gone for held, young, gone in zip(gpu.held, gpu.young, gpu.gone, strict=True)]

    def reset_peak(self, index: int) -> None:
        """Let the peak of GPU `index` start again from what is live now."""
        self._set_peak(index, self.live[index])
        gpu = self.gpus[index]
        gpu.most = list(gpu.held)
        gpu.most_blocks = sum(pool.num for pool in gpu.pools)
        for pool in gpu.pools:
            pool.reset_peak()

    def reset_totals(self, index: int) -> None:
        """Let what GPU `index` ever took and gave back start again from zero."""
        gpu = self.gpus[index]
        gpu.num_ooms = 0
        for pool in gpu.pools:
            pool.reset_totals()

    def transfer(self, source: int | None, target: int | None, nbytes: int) -> None:
        """Count a copy of `nbytes` from one device to another; None is the host."""
        moved = self.moved
        if source is None:
            moved.host_to_device += nbytes
            moved.num_host_to_device += 1
        elif target is None:
            moved.device_to_host += nbytes
            moved.num_device_to_host += 1
        else:
            moved.device_to_device += nbytes
            moved.num_device_to_device += 1
        place = (self.phase, source, target)
        self.moved_in[place] = self.moved_in.get(place, 0) + nbytes

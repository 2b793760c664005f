"""The bytes that each virtual GPU holds, and the bytes copied to and from it.

Bytes are counted by storage: views and aliases of one storage count once, and the storage's bytes come back
the moment it dies. Each storage carries its own `Allocation` (see `labels.py`); when the storage goes, Python
drops the allocation and its `__del__` gives the bytes back. There are no weak references, and no registry to
keep in step. What the bytes are for, and which blocks they are, is followed in `accounts.py`, if asked for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dpdemo.virtual.accounts import ALLOCATED, Accounts
from dpdemo.virtual.blocks import BLOCK_BYTES, Kind, rounded
from dpdemo.virtual.errors import out_of_memory

_LAST_BYTE = BLOCK_BYTES - 1


class Allocation:
    """One storage's place on a virtual GPU: the label that says where its tensors live.

    Raises:
        torch.OutOfMemoryError: the GPU has a limit, and this would go past it.

    """

    # `birth`, the number of the allocation, is there once there are accounts.
    __slots__ = ("birth", "index", "kind", "ledger", "nbytes", "requested")

    def __init__(self, ledger: "Ledger", index: int, requested: int, kind: Kind = Kind.TEMPORARY) -> None:
        self.ledger = ledger
        self.index = index
        self.kind = kind
        self.requested = requested
        nbytes = requested + _LAST_BYTE & -BLOCK_BYTES  # as `count` does, at the cost of one call less
        live = ledger.live
        now = live[index] + nbytes
        if now > ledger.most[index]:
            self.nbytes = self.birth = 0  # until the ledger has agreed
            ledger.allocate(self, now, nbytes)
        live[index] = now
        self.nbytes = nbytes

    @classmethod
    def uncounted(cls, ledger: "Ledger", index: int, requested: int) -> "Allocation":
        """Make a label that takes no bytes before `count`."""
        label = cls(ledger, index, 0)
        label.requested = requested
        return label

    def count(self) -> None:
        """Take the bytes, if they are not taken yet."""
        if not self.nbytes:
            nbytes = rounded(self.requested)
            now = self.ledger.live[self.index] + nbytes
            self.ledger.allocate(self, now, nbytes)
            self.ledger.live[self.index] = now
            self.nbytes = nbytes

    def resize(self, requested: int) -> None:
        """Follow a storage that changed its size in place (`resize_`, `out=`)."""
        accounts = self.ledger.accounts
        kind = self.kind if accounts is None else accounts.kind_of(self)
        new = Allocation(self.ledger, self.index, requested, kind)  # first, as when data is kept
        self.free()
        self.kind, self.nbytes, self.requested = kind, new.nbytes, requested
        if accounts is not None:
            self.birth = new.birth
        new.nbytes = 0  # its bytes are this one's now

    def mark(self, kind: Kind) -> None:
        """Note what the storage turned out to be for."""
        if self.ledger.accounts is not None:
            self.ledger.accounts.change_kind(self, kind)
        self.kind = kind

    def free(self) -> None:
        """Give the bytes back."""
        nbytes = self.nbytes
        if nbytes:
            ledger = self.ledger
            ledger.live[self.index] -= nbytes
            if ledger.accounts is not None:
                ledger.accounts.freed(self)

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


@dataclass
class Ledger:
    """Live and peak bytes of each GPU, and the bytes moved; one for each `virtual_gpus` block.

    `limits` has the capacity of each GPU, or None where there is none. `phase` is what the program is doing,
    in the words of the code that sets it. What the bytes are for is in `accounts`, once somebody asks.
    """

    num_gpus: int
    limits: Sequence[int | None] = ()
    live: list[int] = field(init=False)
    peak: list[int] = field(init=False)
    # Where a closer look begins: past the peak, past what is allowed, or at once if there are accounts.
    most: list[int] = field(init=False)
    phase: str = ""
    moved: BytesMoved = field(default_factory=BytesMoved)
    moved_in: dict[tuple[str, int | None, int | None], int] = field(default_factory=dict)
    accounts: Accounts | None = None
    when_full: Callable[[int], object] | None = None
    stream_of: Callable[[int], int] = lambda _: 0  # the calling thread's current stream on a GPU
    num_ooms: list[int] = field(init=False)
    allowed: list[int | None] = field(init=False)  # the capacity, or the part of it that the program may use
    fractions: dict[int, tuple[float, int]] = field(default_factory=dict)  # which part, and of how much

    def __post_init__(self) -> None:
        self.live, self.peak, self.most, self.num_ooms = ([0] * self.num_gpus for _ in range(4))
        self.limits = list(self.limits) or [None] * self.num_gpus
        self.allowed = list(self.limits)
        for index in range(self.num_gpus):
            self._look_closer(index)

    def _look_closer(self, index: int) -> None:
        """Set from how many bytes on a GPU `allocate` must be asked."""
        peak, allowed = self.peak[index], self.allowed[index]
        self.most[index] = (
            -1 if self.accounts is not None else min(peak, peak if allowed is None else allowed)
        )

    def see_only(self, visible: Sequence[int]) -> None:
        """Keep the GPUs `visible`, in this order; nothing was booked yet."""
        self.num_gpus = len(visible)
        self.limits = [self.limits[index] for index in visible]
        self.__post_init__()

    def allow(self, index: int, num_bytes: int) -> None:
        """Let the program use so much of GPU `index`."""
        self.allowed[index] = num_bytes
        self._look_closer(index)

    def allocate(self, allocation: Allocation, live: int, nbytes: int) -> None:
        """Book `nbytes` with which a GPU holds `live`: they may be too many, or a new peak."""
        index = allocation.index
        allowed = self.allowed[index]
        if allowed is not None and live > allowed:
            raise self.full(index, nbytes, allowed)
        is_peak = live > self.peak[index]
        if is_peak:
            self.peak[index] = live
            self._look_closer(index)
        if self.accounts is not None:
            accounts, kind = self.accounts, allocation.kind
            allocation.birth = accounts.allocated(index, nbytes, kind, is_peak=is_peak)
            if accounts.log is not None and nbytes:
                stream = self.stream_of(index)
                accounts.log.append(
                    (ALLOCATED, allocation.birth, index, allocation.requested, kind, self.phase, stream)
                )

    def full(self, index: int, nbytes: int, allowed: int) -> Exception:
        """Note that GPU `index` has no room for `nbytes`, and build the error."""
        self.num_ooms[index] += 1
        if self.when_full is not None:
            self.when_full(index)
        if index not in self.fractions:
            return out_of_memory(index, nbytes, allowed, self.live[index])
        _, total = self.fractions[index]
        return out_of_memory(index, nbytes, total, self.live[index], allowed)

    def reset_peak(self, index: int) -> None:
        """Let the peak of GPU `index` start again from what is live now."""
        self.peak[index] = self.live[index]
        self._look_closer(index)
        if self.accounts is not None:
            self.accounts.reset_peak(index)

    def reset_totals(self, index: int) -> None:
        """Let what GPU `index` ever took and gave back start again from zero."""
        self.num_ooms[index] = 0
        if self.accounts is not None:
            self.accounts.reset_totals(index)

    def open_accounts(self) -> Accounts:
        """Return the accounts, which follow each allocation from when they are first asked for."""
        if self.accounts is None:
            self.accounts = Accounts(self)
            for index in range(self.num_gpus):
                self._look_closer(index)
        return self.accounts

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

"""What `dpdemo exec` reports of a program: its DataParallel calls, the bytes it moved, what each GPU held.

Frozen and torch-free, as every report: the watch makes one, and whatever draws only reads it.
"""

from dataclasses import dataclass

from dpdemo.devices import Devices
from dpdemo.report import BatchGroup


@dataclass(frozen=True, slots=True)
class Use:
    """One DataParallel object, or all calls alike of a functional one: how its calls were split.

    `wrapper` is its class, or the function that was called; `module` the class of what it wraps; `number` its
    place in the order of construction, from 1. Each of `splits` stands for all calls that were split alike:
    `first` is the number of the first of them, `count` how many there were. An empty `in_model` is a call
    whose split was not seen. `num_unlisted` calls were split in yet other ways.
    """

    number: int
    wrapper: str
    module: str
    devices: Devices
    splits: tuple[BatchGroup, ...]
    num_calls: int
    num_failed: int = 0
    num_unlisted: int = 0
    is_function: bool = False
    in_replica: bool = False


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes copied between the host and the GPUs, and between GPUs, and the number of copies."""

    host_to_device_bytes: int
    device_to_device_bytes: int
    device_to_host_bytes: int
    num_host_to_device: int
    num_device_to_device: int
    num_device_to_host: int


@dataclass(frozen=True, slots=True)
class ExecReport:
    """What a program did on virtual GPUs.

    `peak_bytes` has one number a GPU, since the program's start or since its own last
    `torch.cuda.reset_peak_memory_stats`. `set_visible` is what the program set CUDA_VISIBLE_DEVICES to, if it
    did: virtual GPUs do not heed it. `capacity_bytes` has what each GPU could hold, where that was limited.
    """

    program: str
    arguments: tuple[str, ...]
    devices: Devices
    uses: tuple[Use, ...]
    traffic: Traffic
    peak_bytes: tuple[int, ...]
    set_visible: str | None = None
    capacity_bytes: tuple[int, ...] | None = None

    @property
    def peaks(self) -> list[tuple[int, int | None]]:
        """What each GPU held at its peak, and what it could hold; None where that was not limited."""
        limits = self.capacity_bytes or (None,) * len(self.peak_bytes)
        return list(zip(self.peak_bytes, limits, strict=True))

"""What `dpdemo exec` reports of a program: its DataParallel calls, the bytes it moved, what each GPU held.

Frozen and torch-free, as every report: the watch makes one, and whatever draws only reads it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainSerializer

from dpdemo.reports.base import Hidden, IfThere, Report, Row, computed
from dpdemo.reports.check import CheckReport
from dpdemo.reports.devices import Devices
from dpdemo.reports.split import BatchGroup, crossed

if TYPE_CHECKING:
    from dpdemo.results.tokens import SeenTokens
else:
    SeenTokens = Any  # its own `to_dict` makes the JSON


def _plain_tokens(tokens: "SeenTokens") -> dict[str, Any]:
    return tokens.to_dict()


@dataclass(frozen=True, slots=True)
class Use:
    """One module in DataParallel, or all calls of it by a functional one: how its calls were split.

    `wrapper` is the wrapper's class, or the function that was called; `module` the class of what it wraps;
    `number` its place in the order of construction, from 1; `num_objects` how often the module, or another of
    its class at the same place of the program, was wrapped alike; of a function the number of its modules.
    Each of `splits` stands for all calls that were split alike: `first` is the number of the first of them,
    `count` how many there were. An empty `in_model` is a call whose split was not seen. `num_unlisted` calls
    were split in yet other ways. `tokens` is there where the arguments tell tokens from padding.
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
    num_objects: int = 1
    tokens: Annotated[SeenTokens | None, PlainSerializer(_plain_tokens), IfThere] = None


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
class GpuPeak:
    """What a GPU held at most, since the start or the program's last reset of the peaks; None is no limit."""

    device: str
    peak_bytes: int
    capacity_bytes: int | None


@dataclass(frozen=True, slots=True)
class ExecReport(Report):
    """What a program did on virtual GPUs.

    `peak_bytes` has one number per GPU, since the program's start or since its own last
    `torch.cuda.reset_peak_memory_stats`. `set_visible` is what the program set CUDA_VISIBLE_DEVICES to, if it
    did; `num_hidden` is how many GPUs it did not see for that, and `is_set_late` says that this came after
    CUDA had read it, and so changed nothing; where the program did not start CUDA at all (`is_started`), only
    the processes that it started can have read it. `capacity_bytes` has what each GPU could hold, where that
    was limited.
    """

    SCHEMA: ClassVar[str] = "dpdemo.exec/1"
    columns: ClassVar[tuple[str, ...]] = (
        *("number", "wrapper", "module", "first", "count", "batch_size"),
        *("replica", "device", "rows", "input", "output"),
    )
    program: str
    arguments: tuple[str, ...]
    devices: Devices
    uses: Annotated[tuple[Use, ...], Field(serialization_alias="data_parallel")]
    traffic: Annotated[Traffic, Field(serialization_alias="moved")]
    peak_bytes: Annotated[tuple[int, ...], Hidden]
    set_visible: Annotated[str | None, Field(serialization_alias="cuda_visible_devices")] = None
    num_hidden: Annotated[int, Field(serialization_alias="num_hidden_gpus")] = 0
    is_set_late: Annotated[bool, Field(serialization_alias="is_cuda_visible_devices_late")] = False
    is_started: Annotated[bool, Field(serialization_alias="is_cuda_started")] = True
    capacity_bytes: Annotated[tuple[int, ...] | None, Hidden] = None
    check: CheckReport | None = None
    """What a check of its calls found, where one was asked for."""

    @computed
    def virtual(self) -> Literal[True]:
        """Whether the GPUs were virtual ones: here they always are."""
        return True

    @computed
    def memory(self) -> tuple[GpuPeak, ...]:
        """What each GPU held at its peak, and what it could hold."""
        peaks = zip(self.devices, self.peaks, strict=True)
        return tuple(GpuPeak(device, peak, capacity) for device, (peak, capacity) in peaks)

    def each_row(self) -> Iterator[Row]:
        """Yield a row for each replica of all calls that were split alike."""
        for use in self.uses:
            for group in use.splits:
                calls = (use.number, use.wrapper, use.module, group.first, group.count, group.batch_size)
                for one in group.in_model:
                    shapes = (crossed(one.input), crossed(one.output))
                    yield *calls, one.replica, one.device, one.rows, *shapes

    @property
    def peaks(self) -> list[tuple[int, int | None]]:
        """What each GPU held at its peak, and what it could hold; None where that was not limited."""
        limits = self.capacity_bytes or (None,) * len(self.peak_bytes)
        return list(zip(self.peak_bytes, limits, strict=True))

"""The GPUs that torch sees, and the pair that breaks DataParallel's balance rule."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from dpdemo.arithmetic.balance import Imbalance, VisibleDevice, find_imbalance
from dpdemo.reports.base import Report, Row, computed


@dataclass(frozen=True, slots=True)
class VisibleDevices(Report):
    """The visible GPUs; `imbalance` is None where DataParallel over all of them would not warn."""

    SCHEMA: ClassVar[str] = "dpdemo.devices/1"
    columns: ClassVar[tuple[str, ...]] = ("name", "model", "memory_bytes", "multiprocessors")
    devices: tuple[VisibleDevice, ...]

    @computed
    def imbalance(self) -> Imbalance | None:
        """The pair that breaks the rule, with its ratio: the smaller over the larger."""
        return find_imbalance(self.devices)

    def each_row(self) -> Iterator[Row]:
        """Yield a row per GPU."""
        for device in self.devices:
            yield device.name, device.model, device.memory_bytes, device.multiprocessors

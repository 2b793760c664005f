"""The result of a comparison: DataParallel against DistributedDataParallel for one config, without torch."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from dpdemo.config.fields import Config
from dpdemo.reports.base import Finite, IfThere, Ratio, Report, Row, computed
from dpdemo.reports.split import Trace


@dataclass(frozen=True, slots=True)
class Side:
    """The config under one strategy, in numbers; bytes are those of one step, over all devices.

    `rows_per_device` are those of the first batch, 0 on an idle device. `sample_weight` says how many times
    its fair share the heaviest sample of the epoch counts, where each device averages its own rows' loss.
    `gradient_bytes` are added up on one device, or go around a ring. The break-even is a step of one GPU from
    which on so many GPUs over PCIe 4.0 pay, as `dpdemo speedup` predicts it; None for one GPU.
    """

    processes: int
    rows_per_device: tuple[int, ...]
    samples_per_step: int
    steps_per_epoch: int
    samples_drawn: int
    num_repeated: int
    num_dropped: int
    sample_weight: Ratio
    scatter_bytes: int
    broadcast_bytes: int
    gather_bytes: int
    gradient_bytes: int
    break_even_ms_low: float | None = None
    break_even_ms_high: float | None = None
    trace: Annotated[Trace | None, IfThere] = None


@dataclass(frozen=True, slots=True)
class GradientCheck:
    """How far a strategy's gradient is from a single device's, relative to its largest number, and why.

    `sample_weight` says how many times its fair share the heaviest sample counts in it.
    """

    name: str
    difference: Finite
    sample_weight: Ratio
    why: str


@dataclass(frozen=True, slots=True)
class Comparison(Report):
    """Both strategies on one config: `samples` went into the one step whose gradients were computed."""

    SCHEMA: ClassVar[str] = "dpdemo.comparison/2"
    columns: ClassVar[tuple[str, ...]] = ("name", "dp", "ddp", "difference", "sample_weight", "why")
    config: Config
    dp: Side
    ddp: Side
    has_batchnorm: bool
    samples: int
    gradients: tuple[GradientCheck, ...]

    @computed
    def model(self) -> str:
        """The model's name, or the user's `pkg.mod:factory`."""
        return self.config.model

    def each_row(self) -> Iterator[Row]:
        """Yield a row for each number of the two sides, then one for each gradient."""
        for name in Side.__slots__:
            sides = (getattr(self.dp, name), getattr(self.ddp, name))
            if name == "rows_per_device":
                yield name, *(" ".join(map(str, rows)) for rows in sides), None, None, None
            elif name != "trace":
                yield name, *sides, None, None, None
        for check in self.gradients:
            yield check.name, None, None, check.difference, check.sample_weight, check.why

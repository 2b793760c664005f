"""The result of a comparison: DataParallel against DistributedDataParallel for one config, without torch."""

from dataclasses import dataclass

from dpdemo.config import Config
from dpdemo.report import SplitReport


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing, and how it stands under each strategy."""

    name: str
    dp: str
    ddp: str


@dataclass(frozen=True, slots=True)
class GradientCheck:
    """How far a strategy's gradient is from a single device's, relative to its largest number, and why."""

    name: str
    difference: float
    why: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both strategies on one config: `samples` went into the one step whose gradients were computed."""

    config: Config
    dp: SplitReport
    ddp: SplitReport
    facts: tuple[Fact, ...]
    samples: int
    gradients: tuple[GradientCheck, ...]

    @property
    def title(self) -> str:
        """Say what is compared."""
        return f"{self.config.model} over {len(self.ddp.devices)} GPUs: one process, or a process for each"

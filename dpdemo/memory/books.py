"""The memory of each GPU from the lanes of a step, of a step that was made or of one that follows from it."""

from collections.abc import Sequence
from dataclasses import dataclass

from dpdemo.memory.hardware import Hardware
from dpdemo.memory.trace import Figures, Lane, Replay
from dpdemo.results.memorydata import PARTS, GpuMemory
from dpdemo.virtual.blocks import KIND_NAMES


@dataclass(frozen=True)
class Books:
    """Replays lanes for GPUs of some capacities."""

    capacities: Sequence[int | None]
    hardware: Hardware
    is_inference: bool = False

    def gpus(self, lanes: Sequence[Lane]) -> tuple[GpuMemory, ...]:
        """Replay the lanes of all GPUs; equal ones, such as those of replicas, once."""
        known: list[tuple[Lane, Figures]] = []
        gpus = []
        for index, lane in enumerate(lanes):
            figures = next((figures for other, figures in known if other == lane), None)
            if figures is None:
                figures = Replay(lane, self._workspaces).figures()
                known.append((lane, figures))
            gpus.append(self._memory_of(index, figures))
        return tuple(gpus)

    @property
    def _workspaces(self) -> list[int]:
        return self.hardware.workspaces(inference=self.is_inference)

    def _memory_of(self, index: int, figures: Figures) -> GpuMemory:
        parts = dict(zip(KIND_NAMES, figures.parts, strict=True))
        most = dict(zip(KIND_NAMES, figures.most, strict=True))
        is_used = any(figures.parts)
        parts["library workspaces"] = most["library workspaces"] = sum(self._workspaces) if is_used else 0
        return GpuMemory(
            device=f"cuda:{index}",
            parts=tuple(parts[part] for part in PARTS),
            phase=figures.phase,  # type: ignore[arg-type] # the phases are set by `steps.py`
            capacity_bytes=self.capacities[index],
            largest=tuple(most[part] for part in PARTS),
            reserved_bytes=figures.reserved_bytes if is_used else 0,
            context_bytes=self.hardware.reserve_bytes if is_used else 0,
        )

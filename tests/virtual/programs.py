"""Programs for virtual GPUs of any storage: models with what they are called with, and training steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from dpdemo.virtual import VirtualGpus, virtual_gpus


@dataclass
class Notes:
    """What the ledger says after each phase of a program, and of its fullest moment in that phase."""

    gpus: VirtualGpus
    pages: dict[str, Any] = field(default_factory=dict)

    def __call__(self, phase: str) -> None:
        """Close a phase: note what is held and what was moved, and begin the next one."""
        self.pages[phase] = [
            {
                "live": self.gpus.live_by_kind(index),
                "peak": self.gpus.peak_by_kind(index),
                "peak_bytes": self.gpus.peak_bytes(index),
                "peak_phase": self.gpus.peak_phase(index),
            }
            for index in range(len(self.gpus))
        ] + [self.gpus.bytes_moved_between, vars(self.gpus.bytes_moved).copy()]
        self.gpus.phase = f"after {phase}"
        self.gpus.reset_peaks()


def pages_of(program: Callable[[Notes], None], storage: Any, num_gpus: int = 3) -> dict[str, Any]:
    """Run a program on GPUs with this storage; return what the ledger said after each phase."""
    torch.manual_seed(0)
    with virtual_gpus(num_gpus, storage=storage) as gpus:
        notes = Notes(gpus)
        program(notes)
        notes("end")
        return notes.pages

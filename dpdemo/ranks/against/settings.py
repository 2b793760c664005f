"""The settings of one run of the program, which reach its processes by an environment variable."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

VARIABLE = "DPDEMO_RANKS_AGAINST"


@dataclass(frozen=True)
class Settings:
    """How the program runs: on N ranks, which note, or on one, which gets what they noted."""

    folder: str
    num_ranks: int
    steps: int = 3
    is_replay: bool = False
    in_turns: bool = False
    """Whether the one process gets the ranks' batches one after the other, not their union."""
    has_own_norms: bool = False
    """Whether BatchNorm normalizes each rank's rows by themselves."""
    nudge: float = 0.0
    """The relative change of each parameter, to see how far rounding goes."""

    terms: Mapping[str, Sequence[Sequence[tuple[int, float]]]] = field(default_factory=dict)
    """By the number of a backward pass: of each term and rank, its rows and the factor of their gradient."""

    @classmethod
    def of_environment(cls) -> Settings | None:
        """Return the settings of this process, or None."""
        text = os.environ.get(VARIABLE)
        return None if text is None else cls(**json.loads(text))

    def environment(self) -> dict[str, str]:
        """Return the variable that carries them."""
        return {VARIABLE: json.dumps(asdict(self))}

    def store(self, rank: int | str) -> Path:
        """Return the file of a rank's tensors and samples."""
        return Path(self.folder) / f"{rank}.store"

    def events(self, rank: int) -> Path:
        """Return the file of what a rank noted, for the one process."""
        return Path(self.folder) / f"{rank}.jsonl"

"""The settings of one run of the program, which reach its processes by an environment variable."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

VARIABLE = "DPDEMO_RANKS_AGAINST"
DEFAULT_STEPS = 3


@dataclass(frozen=True)
class Settings:
    """How the program runs: on N ranks, which note, or on one, which gets what they noted."""

    folder: str
    num_ranks: int
    """0 as long as nobody knows how many the program starts."""
    steps: int = DEFAULT_STEPS
    is_replay: bool = False
    by_program: bool = False
    """Whether the program starts its ranks itself."""
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

    def store(self, rank: int) -> Path:
        """Return the file of a rank's tensors and samples, once the ranks have ended."""
        return Path(self.folder) / f"{rank}.store"

    def store_of(self, process: int | str) -> Path:
        """Return the file that a process writes: its rank may be known later."""
        return Path(self.folder) / f"{'one' if self.is_replay else 'process'}{process}.store"

    def events(self, rank: int) -> Path:
        """Return the file of what a rank noted, for the one process."""
        return Path(self.folder) / f"{rank}.jsonl"

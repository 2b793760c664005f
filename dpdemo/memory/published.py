"""Published figures of real GPUs beside predicted ones (`published.csv`), and the method's error there."""

import csv
import statistics
from functools import cache
from pathlib import Path
from typing import NamedTuple

from dpdemo.results.wrapping import NAMES

_MEASURED = {
    "allocated": "the peak that PyTorch allocates is predicted to {} in the median and {} at worst of {}; "
    "what it reserves is less sure",
    "reserved": "what PyTorch reserves at the peak is predicted to {} in the median and {} at worst of {}",
}


class Published(NamedTuple):
    """The errors of predictions for a strategy, as shares of what was measured."""

    strategy: str
    figure: str
    num_cases: int
    median: float
    worst: float

    @property
    def note(self) -> str:
        """The line of a report."""
        cases = f"{self.num_cases} published cases of {NAMES[self.strategy]}"
        errors = _MEASURED[self.figure].format(f"{self.median:.1%}", f"{self.worst:.1%}", cases)
        return f"Give or take: {errors} (docs/memory.md).".replace("%", " %")


@cache
def rows() -> tuple[dict[str, str], ...]:
    """Read the published cases; `predicted_mib` is checked by tests/memory/test_published.py."""
    text = (Path(__file__).parent / "published.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def published(strategy: str) -> Published:
    """Compare predictions with publications; those of DataParallel with DistributedDataParallel's."""
    strategy = "ddp" if strategy == "dp" else strategy
    chosen = [row for row in rows() if row["strategy"] == strategy]
    errors = [
        abs(float(row["predicted_mib"]) * 2**20 / (float(row["published"]) * float(row["unit_bytes"])) - 1)
        for row in chosen
    ]
    return Published(strategy, chosen[0]["figure"], len(errors), statistics.median(errors), max(errors))


def worst_error() -> float:
    """Return the largest error of any strategy."""
    return max(published(strategy).worst for strategy in ("ddp", "fsdp2"))

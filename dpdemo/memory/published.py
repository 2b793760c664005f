"""Published peaks of real GPUs beside predicted ones (`published.csv`), and the method's error there."""

import csv
import statistics
from functools import cache
from pathlib import Path
from typing import NamedTuple

UNIT = 1000 * 2**20
"""The publishers' "GiB", to a tenth."""


class Published(NamedTuple):
    """The errors of predictions, as shares of what was measured."""

    num_cases: int
    median: float
    worst: float

    @property
    def note(self) -> str:
        """The line of a report."""
        return (
            f"Give or take: peaks measured on real GPUs are predicted to {self.median:.1%} in the "
            f"median of {self.num_cases} published cases, and to {self.worst:.1%} at worst; what PyTorch "
            "reserves for them is less sure (docs/memory.md)."
        ).replace("%", " %")


@cache
def rows() -> tuple[dict[str, str], ...]:
    """Read the published cases; `predicted_mib` is checked by tests/memory/test_published.py."""
    text = (Path(__file__).parent / "published.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def published() -> Published:
    """Compare what is predicted with what was published."""
    errors = [
        abs(float(row["predicted_mib"]) * 2**20 / (float(row["gib_thousandths"]) * UNIT) - 1)
        for row in rows()
    ]
    return Published(len(errors), statistics.median(errors), max(errors))

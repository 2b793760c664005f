"""The result of `speedup`, in every form."""

from collections.abc import Iterator
from dataclasses import dataclass

from dpdemo.results import speeduptable as table
from dpdemo.results.speedupdata import SpeedupData
from dpdemo.results.table import Block, Canvas


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupReport(SpeedupData):
    """See `SpeedupData` for its fields."""

    def blocks(self, canvas: Canvas) -> Iterator[Block]:
        """Yield a row per fact, a column per way, and a bar per way for one step."""
        return table.parts(self, canvas)

"""The result of `memory`, in every form."""

from collections.abc import Iterator
from dataclasses import dataclass

from dpdemo.results import memorytable as table
from dpdemo.results.memorydata import MemoryData
from dpdemo.results.table import Block, Canvas


@dataclass(frozen=True, slots=True)
class MemoryReport(MemoryData):
    """See `MemoryData` for its fields."""

    def blocks(self, canvas: Canvas) -> Iterator[Block]:
        """Yield a row per part, a column per GPU, a bar per GPU, and the answer."""
        return table.Picture(self, canvas).parts()

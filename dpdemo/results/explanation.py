"""The result of `explain`, in every form."""

from collections.abc import Iterator
from dataclasses import dataclass

from dpdemo.results import explanationtable as table
from dpdemo.results.explanationdata import ExplanationData
from dpdemo.results.table import Block, Canvas


@dataclass(frozen=True, slots=True)
class Explanation(ExplanationData):
    """See `ExplanationData` for its fields."""

    def blocks(self, canvas: Canvas) -> Iterator[Block]:
        """Yield a table for each step, its copies, and a sentence to learn from."""
        return table.draw(self, canvas)

"""The report of `dpdemo exec --ranks`: its data with its picture."""

from collections.abc import Iterator
from dataclasses import dataclass

from dpdemo.results import rankpicture
from dpdemo.results.rankdata import RanksData
from dpdemo.results.table import Block, Canvas


@dataclass(frozen=True)
class RanksResult(RanksData):
    """The run of a program as ranks of torch.distributed."""

    def blocks(self, canvas: Canvas) -> Iterator[Block]:
        """Yield the picture: modules, samples, collectives and peaks, ranks that did the same together."""
        return rankpicture.draw(self, canvas)

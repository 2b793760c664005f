"""The samples that each rank draws by the rule of a library: batches, and samples doubled and left out."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from dpdemo.results.formats import Row
from dpdemo.results.rankparts import Part
from dpdemo.results.ranksamples import names_text, often
from dpdemo.results.report import Report
from dpdemo.results.table import Block, Canvas
from dpdemo.wording import counted

_MOST_NAMED, _MOST_BATCHES = 12, 6


@dataclass(frozen=True)
class DrawsReport(Report):
    """The batches of each rank, as sample numbers."""

    SCHEMA: ClassVar[str] = "dpdemo.draws/1"
    DERIVED: ClassVar[tuple[str, ...]] = ("times", "left_out")
    title: ClassVar[str] = "dpdemo simulate --loader"
    loader: str
    source: str
    data_size: int
    batch_size: int
    ranks: tuple[tuple[tuple[int, ...], ...], ...]

    @cached_property
    def _times(self) -> Counter[int]:
        return Counter(sample for batches in self.ranks for batch in batches for sample in batch)

    @property
    def times(self) -> dict[int, int]:
        """By number of draws, how many samples are drawn so often."""
        return dict(sorted(Counter(self._times.values()).items(), reverse=True))

    @property
    def left_out(self) -> int:
        """Number of samples that no rank draws."""
        return self.data_size - len(self._times)

    def each_row(self) -> Iterator[Row]:
        """Yield a row for each batch of each rank."""
        for rank, batches in enumerate(self.ranks):
            for number, batch in enumerate(batches, 1):
                yield rank, number, len(batch), names_text(batch)

    def blocks(self, _: Canvas) -> Iterator[Block]:
        """Yield the batches of each rank, and a sum over them."""
        rows = tuple(
            (str(rank), str(len(batches)), str(sum(map(len, batches))), batches_text(batches))
            for rank, batches in enumerate(self.ranks)
        )
        head = ("rank", "steps", "samples", "batches")
        heading = f"Predicted: {self.loader} over {counted(len(self.ranks), 'rank')}"
        yield from Part(heading, ("right", "right", "right", "fold"), head, rows, self._below()).blocks()

    def _below(self) -> tuple[str, ...]:
        steps = sorted({len(batches) for batches in self.ranks})
        counts = " or ".join(map(str, steps))
        return (
            f"Batch size {self.batch_size}, steps: {counts} on each rank",
            f"{self._times.total()} drawn from {counted(self.data_size, 'sample')}: {self._histogram()}",
            f"Source: {self.source}",
        )

    def _histogram(self) -> str:
        parts = []
        for times, count in self.times.items():
            names = sorted(sample for sample, number in self._times.items() if number == times)
            shown = f" ({names_text(names)})" if times > 1 and count <= _MOST_NAMED else ""
            parts.append(f"{count} {often(times)}{shown}")
        if not self.left_out:
            return ", ".join([*parts, "none left out"])
        missing = [sample for sample in range(self.data_size) if sample not in self._times]
        shown = f" ({names_text(missing)})" if len(missing) <= _MOST_NAMED else ""
        return ", ".join([*parts, f"{self.left_out} never{shown}"])


def batches_text(batches: tuple[tuple[int, ...], ...]) -> str:
    """Write the first batches of a rank: `0–3 | 8, 9, 0, 1`."""
    shown = [names_text(batch) or "none" for batch in batches[:_MOST_BATCHES]]
    more = ["…"] if len(batches) > _MOST_BATCHES else []
    return " | ".join(shown + more) or "none"

"""The weight of each sample in the gradient under DataParallel, compared with one GPU."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from dpdemo.results.formats import Row
from dpdemo.results.report import TableReport
from dpdemo.results.table import Block, Canvas, Table, styled

_EQUAL = 1e-9
"""Weights computed in float64 that are this near are the same."""


@dataclass(frozen=True, slots=True)
class SampleWeight:
    """One sample: 1.0 counts as on one GPU, None has no part in the loss.

    `tokens` has the weight of each of its tokens that a label counts, where there are several.
    """

    index: int
    device: str
    weight: float | None
    tokens: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class WeightsReport(TableReport):
    """The weight of each sample; `chunks` has the rows of each GPU."""

    SCHEMA: ClassVar[str] = "dpdemo.weights/1"
    DERIVED: ClassVar[tuple[str, ...]] = ("is_even", "repair")
    title: ClassVar[str] = "dpdemo sample weights"
    columns: ClassVar[tuple[str, ...]] = ("sample", "device", "weight", "tokens")
    model: str
    num_gpus: int
    batch_size: int
    chunks: tuple[int, ...]
    samples: tuple[SampleWeight, ...]

    def each_row(self) -> Iterator[Row]:
        """Yield a row per sample."""
        for sample in self.samples:
            yield sample.index, sample.device, sample.weight, len(sample.tokens) or 1

    @property
    def is_even(self) -> bool:
        """Whether each sample counts as much as on one GPU."""
        weights = [sample.weight for sample in self.samples if sample.weight is not None]
        return all(abs(weight - 1) < _EQUAL for weight in weights)

    @property
    def repair(self) -> str:
        """The repair that makes each count as on one GPU; "" if none is needed."""
        if self.is_even:
            return ""
        return (
            "return the sum and the count from forward, each of shape (1,): loss = sums.sum() / counts.sum()"
        )

    @property
    def verdict(self) -> str:
        """Name the sample that counts most."""
        most = max(self.samples, key=lambda sample: sample.weight or 0.0)
        what = "token" if any(sample.tokens for sample in self.samples) else "sample"
        if self.is_even or most.weight is None:
            return f"each {what} counts as much as on one GPU"
        return f"a {what} on {most.device} counts {most.weight:.2f} times as much as on one GPU"

    def blocks(self, _: Canvas) -> Iterator[Block]:
        """Yield the title and a line for each sample."""
        chunks = "+".join(map(str, self.chunks))
        title = f"{self.model}, batch {self.batch_size} as {chunks}: {self.verdict}"
        yield styled(title, "bold")
        rows = Table((8, 8, 10, "fold"), head=("sample", "GPU", "weight", "tokens"), gap=1)
        for sample in self.samples:
            weight = "none" if sample.weight is None else f"{sample.weight:.4f}"
            rows.add(str(sample.index), sample.device, weight, str(len(sample.tokens) or 1))
        yield rows
        if self.repair:
            yield styled(self.repair, "green")

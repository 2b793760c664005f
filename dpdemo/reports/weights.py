"""How much each sample of a batch counts in the gradient under DataParallel, against one GPU."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from dpdemo.reports.base import Report, Row, computed

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
class WeightsReport(Report):
    """The weight of each sample; `chunks` has the rows of each GPU."""

    SCHEMA: ClassVar[str] = "dpdemo.weights/1"
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

    @computed
    def is_even(self) -> bool:
        """Whether each sample counts as much as on one GPU."""
        return all(one.weight is None or abs(one.weight - 1) < _EQUAL for one in self.samples)

    @computed
    def repair(self) -> str:
        """What makes each count as on one GPU; empty where it does."""
        if self.is_even:
            return ""
        return (
            "return the sum and the count from forward, each of shape (1,): loss = sums.sum() / counts.sum()"
        )

    @property
    def heaviest(self) -> SampleWeight:
        """The sample that counts most."""
        return max(self.samples, key=lambda one: one.weight if one.weight is not None else 0.0)

    @property
    def verdict(self) -> str:
        """Say in a line which sample counts most."""
        one = self.heaviest
        what = "token" if any(sample.tokens for sample in self.samples) else "sample"
        if self.is_even or one.weight is None:
            return f"each {what} counts as much as on one GPU"
        return f"a {what} on {one.device} counts {one.weight:.2f} times as much as on one GPU"

"""The epoch's data: seeded noise of a bounded size, from which each sample is taken as it is needed.

Sample number i is a function of (seed, i), so it is the same sample in whatever order, batch or process it is
drawn. After some 65,000 numbers the noise begins again.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from dpdemo.config.catalogue import Shape

_MOST_NUMBERS = 1 << 16
_BLOCK_NUMBERS = 1 << 15
"""Numbers taken at once: enough that a batch costs little, and not more than ATen's grain size
(`ATen/TensorIterator.h`, GRAIN_SIZE), above which each of these small operations would wake all cores."""


@dataclass(frozen=True)
class NoiseDataset:
    """Samples of one shape, addressable by number: noise of variance 1, or ids below `vocabulary`."""

    sample: Shape
    seed: int
    dtype: torch.dtype
    vocabulary: int = 0

    @cached_property
    def _noise(self) -> torch.Tensor:
        shape = (max(1, _MOST_NUMBERS // max(1, math.prod(self.sample))), *self.sample)
        generator = torch.Generator().manual_seed(self.seed)
        if self.vocabulary:
            return torch.randint(self.vocabulary, shape, generator=generator, device="cpu")
        return torch.randn(shape, generator=generator, device="cpu").to(self.dtype)

    def rows(self, numbers: torch.Tensor) -> torch.Tensor:
        """Take the samples with these int64 numbers: a tensor of [len(numbers), *sample]."""
        return self._noise.index_select(0, numbers % len(self._noise))


def epoch_order(data_size: int, seed: int, *, shuffle: bool) -> torch.Tensor | None:
    """Return the order of an epoch's samples; None for 0, 1, 2 and so on.

    A shuffled epoch draws torch.randperm from the seed, as torch.utils.data's samplers do, and costs what it
    costs there: 8 bytes per sample.
    """
    if not shuffle:
        return None
    return torch.randperm(data_size, generator=torch.Generator().manual_seed(seed), device="cpu")


@dataclass(frozen=True)
class BatchLoader:
    """Yields the batches of an epoch, each with its batch dimension at `dim`."""

    dataset: NoiseDataset
    data_size: int
    batch_size: int
    dim: int = 0
    drop_last: bool = False
    order: torch.Tensor | None = None

    def __len__(self) -> int:
        full, rest = divmod(self.data_size, self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[torch.Tensor]:
        stop = len(self) * self.batch_size if self.drop_last else self.data_size
        width = max(1, math.prod(self.dataset.sample))
        block = max(1, _BLOCK_NUMBERS // (width * self.batch_size)) * self.batch_size
        for start in range(0, stop, block):
            end = min(start + block, stop)
            numbers = torch.arange(start, end, device="cpu") if self.order is None else self.order[start:end]
            batches = torch.split(self.dataset.rows(numbers), self.batch_size)
            yield from batches if self.dim == 0 else (batch.movedim(0, self.dim) for batch in batches)
